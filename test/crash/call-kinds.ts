import type { Boundary } from "../../core/effect.ts";

/** Kinds of calls that leave the process. */
export type Kind =
  | "netlink"
  | "device"
  | "child"
  | "signal"
  | "file"
  | "database"
  | "directory"
  | "listener"
  | "name"
  | "packet"
  | "qmp"
  | "channel"
  | "stdin"
  | "etcd";

/**
 * The effects each may lie in. As few as can be: a call that several may cover is found, or is
 * not, as whatever else is under way at that moment has it.
 */
export const boundariesOf: Readonly<Record<Kind, readonly Boundary[]>> = {
  netlink: ["netlink"],
  device: ["ioctl"],
  /** Each is one effect's own: see `Children`. */
  child: ["command", "spawn"],
  signal: ["signal"],
  file: ["file"],
  /** SQLite's files, once they have their names. */
  database: ["commit"],
  /** The state directory is synced by SQLite, and by who gives a new database its name. */
  directory: ["commit", "file"],
  /** The file of a socket on which podnetd answers goes when that is closed. */
  listener: ["socket"],
  /** bind(2) and connect(2). */
  name: ["socket"],
  /** What is sent to other machines by podnetd itself: a question whether an address is taken. */
  packet: ["socket"],
  qmp: ["qmp"],
  channel: ["channel"],
  /** Input of a command that runs. */
  stdin: ["command"],
  /** A request: what else goes by the connection to etcd changes nothing. */
  etcd: ["etcd"],
};

/**
 * Which file a call changes, by the first that it names: `20</tmp/state/state.db>`, or
 * `"/tmp/podnet.sock"`.
 */
export function fileKind(call: string, args: string): Kind {
  const [, open, named] = /^(?:\d+<(.*?)>|(?:AT_FDCWD<.*?>, )?"([^"]*)")/.exec(args) ?? [];
  const file = open ?? named ?? "";
  if (/\/state\/state\.db(?:-[-\w]+)?$/.test(file)) return "database";
  if (call === "fsync" && file.endsWith("/state")) return "directory";
  const answered = /(?:\/podnet|\/run\/cni)\.sock$/.test(file);
  return call === "unlink" && answered ? "listener" : "file";
}
