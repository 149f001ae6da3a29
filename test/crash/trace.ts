import type { Boundary } from "../../core/effect.ts";
import { Children } from "./children.ts";
import { boundariesOf, fileKind, type Kind } from "./call-kinds.ts";
import { beginsRequest } from "./http2-frames.ts";
import { parse } from "./points.ts";

/**
 * Reads what strace saw of podnetd (`-f -yy`) with the effects it recorded in between, and finds
 * the system calls that leave the process and lie in no effect of their kind.
 *
 * Left out, because nothing outside of podnetd changes by them or because they are no part of what
 * podnetd does to the host: what the shell does before Node starts; Node's compile cache; reading;
 * log lines; answers to clients of the API; wake-ups within the process (pipes to itself,
 * eventfds); settings of its own descriptors (FIONBIO and the like), and what they are; the record
 * itself.
 */
export interface TraceResult {
  /**
   * Calls in no effect, as strace wrote them; and effects that were to start a process, and
   * started none.
   */
  readonly naked: readonly string[];
  /** How many calls lay in an effect, by what kind of call they were. */
  readonly covered: ReadonlyMap<Kind, number>;
}

export interface TraceOptions {
  readonly recordFile: string;
  readonly logFile: string;
  /** Effects taken for unrecorded, to show that each is needed. */
  readonly without?: Boundary;
}

interface Call {
  readonly pid: number;
  readonly name: string;
  /** Arguments as far as the line has them. */
  readonly args: string;
  readonly line: string;
}

export function readTrace(text: string, options: TraceOptions): TraceResult {
  const lines = text.split("\n");
  const reader = new Reader(options, acceptedIn(lines));
  for (const call of callsOfPodnetd(lines)) reader.take(call);
  return reader;
}

/**
 * What the daemon's threads call, from the start of Node on; in the order in which the calls began.
 */
function callsOfPodnetd(lines: readonly string[]): Call[] {
  // The shell scripts before it keep the pid.
  const begin = lines.findLastIndex((line) =>
    /execve\("[^"]*\/bin\/node", .*daemon\/main\/main\.ts"/.test(line),
  );
  const daemon = pidOf(lines[begin] ?? "");
  if (daemon === undefined) throw new Error("The trace holds no start of podnetd");
  const after = lines.slice(begin + 1);
  const threads = threadsOf(after, daemon);
  return after.flatMap((line) => {
    const [, pid, name, args] = /^(\d+) +(\w+)\((.*)$/.exec(line) ?? [];
    if (pid === undefined || name === undefined || args === undefined) return [];
    return threads.has(Number(pid)) ? [{ pid: Number(pid), name, args, line }] : [];
  });
}

/** Inodes of accepted sockets: podnetd answers clients on them. */
const acceptedIn = (lines: readonly string[]): ReadonlySet<string> =>
  new Set(
    lines.flatMap((line) => {
      const [, inode] = /accept4?[ (].* = \d+<UNIX-STREAM:\[(\d+)/.exec(line) ?? [];
      return inode === undefined ? [] : [inode];
    }),
  );

const pidOf = (line: string): number | undefined => {
  const [, pid] = /^(\d+) /.exec(line) ?? [];
  return pid === undefined ? undefined : Number(pid);
};

/** The threads of a process: what its threads clone with CLONE_THREAD. */
function threadsOf(lines: readonly string[], daemon: number): ReadonlySet<number> {
  const threads = new Set([daemon]);
  const cloning = new Set<number>();
  for (const line of lines) {
    const pid = pidOf(line);
    if (pid === undefined || !threads.has(pid)) continue;
    const begun = /clone3?\(.*CLONE_THREAD/.test(line);
    const resumed = cloning.has(pid) && /<\.\.\. clone3? resumed>/.test(line);
    if (!begun && !resumed) continue;
    const [, made] = / = (\d+)$/.exec(line) ?? [];
    if (made === undefined) cloning.add(pid);
    else {
      threads.add(Number(made));
      cloning.delete(pid);
    }
  }
  return threads;
}

class Reader implements TraceResult {
  readonly naked: string[] = [];
  readonly covered = new Map<Kind, number>();
  readonly #options: TraceOptions;
  readonly #open = new Map<string, number>();
  /** What connected sockets are connected to, by inode. */
  readonly #connected = new Map<string, string>();
  readonly #taps = new Set<number>();
  readonly #children = new Children();
  readonly #accepted: ReadonlySet<string>;

  constructor(options: TraceOptions, accepted: ReadonlySet<string>) {
    this.#options = options;
    this.#accepted = accepted;
  }

  take(call: Call): void {
    const marker = this.#markerOf(call);
    if (marker !== undefined) return this.#perform(marker);
    const kind = this.#kindOf(call);
    if (kind === undefined) return;
    const covered =
      kind === "child"
        ? this.#children.takesOne()
        : boundariesOf[kind].some((boundary) => (this.#open.get(boundary) ?? 0) > 0);
    if (covered) this.covered.set(kind, (this.covered.get(kind) ?? 0) + 1);
    else this.naked.push(`${kind}: ${call.line}`);
  }

  #markerOf({ name, args }: Call): string | undefined {
    if (name !== "write" || targetOf(args) !== this.#options.recordFile) return undefined;
    return /, "(.*)\\n"/.exec(args)?.[1];
  }

  #perform(marker: string): void {
    const { name, boundary, side } = parse(marker);
    if (boundary === this.#options.without) return;
    if (boundary === "command" || boundary === "spawn") {
      if (side === "before") this.#children.begins(name);
      else if (!this.#children.ends(name, side === "failed"))
        this.naked.push(`child: ${marker}, and no process was started`);
    }
    this.#open.set(boundary, (this.#open.get(boundary) ?? 0) + (side === "before" ? 1 : -1));
  }

  #kindOf({ name, args }: Call): Kind | undefined {
    const { logFile, recordFile } = this.#options;
    if (targetOf(args) === logFile || args.includes(compileCache)) return undefined;
    switch (name) {
      case "write":
      case "writev":
      case "pwrite64":
      case "pwritev":
      case "pwritev2":
      case "sendto":
      case "sendmsg":
      case "sendmmsg":
        return this.#writeTo(targetOf(args), args);
      case "connect":
        this.#noteConnection(args);
        return "name";
      case "bind":
        return "name";
      case "clone":
      case "clone3":
        return args.includes("CLONE_THREAD") ? undefined : "child";
      case "fork":
      case "vfork":
      case "execve":
        return "child";
      case "kill":
      case "tkill":
      case "tgkill":
      case "pidfd_send_signal":
        return "signal";
      case "ioctl":
        if (/, (?:FIONBIO|FIOCLEX|FIONCLEX|TCGETS|NS_GET_NSTYPE)\b/.test(args)) return undefined;
        if (args.includes("TUNSETIFF")) this.#taps.add(descriptorOf(args));
        return "device";
      case "close":
        // The tap goes with its last descriptor.
        return this.#taps.delete(descriptorOf(args)) ? "device" : undefined;
      case "accept4":
        return undefined;
      // The thread itself goes somewhere: what it does there is what counts.
      case "setns":
      case "unshare":
        return args.includes("CLONE_NEWNET") ? undefined : "file";
      // libuv (1.52) enters a ring for its own epoll_ctl(2); one that the kernel polls, as older
      // ones had, is for files.
      case "io_uring_setup":
        return args.includes("IORING_SETUP_SQPOLL") ? "file" : undefined;
      case "io_uring_enter":
        return args.includes("IORING_ENTER_SQ_WAKEUP") ? "file" : undefined;
      case "open":
      case "openat":
      case "openat2":
        return args.includes("O_CREAT") && !args.includes(recordFile)
          ? fileKind(name, args)
          : undefined;
      default:
        return fileKind(name, args);
    }
  }

  #writeTo(target: string, args: string): Kind | undefined {
    if (/^(?:pipe|anon_inode):/.test(target)) return undefined;
    if (target.startsWith("NETLINK:")) return "netlink";
    if (/^(?:RAW|UDP|PACKET|PING)(?:v6)?:/.test(target)) return "packet";
    if (target.startsWith("TCP:")) return beginsRequest(args) ? "etcd" : undefined;
    const [, inode] = /^UNIX-(?:STREAM|DGRAM):\[(\d+)/.exec(target) ?? [];
    if (inode === undefined) return fileKind("write", args);
    if (this.#accepted.has(inode)) return undefined;
    const peer = this.#connected.get(inode);
    if (peer === undefined) return "stdin";
    if (/^(?:channel|tty)\.sock$/.test(peer)) return "channel";
    return peer === "qmp.sock" ? "qmp" : "name";
  }

  #noteConnection(args: string): void {
    const [, inode] = /^\d+<UNIX-(?:STREAM|DGRAM):\[(\d+)/.exec(args) ?? [];
    const [, path] = /sun_path="([^"]*)"/.exec(args) ?? [];
    if (inode !== undefined && path !== undefined)
      this.#connected.set(inode, path.slice(path.lastIndexOf("/") + 1));
  }
}

const descriptorOf = (args: string): number => Number.parseInt(args, 10);

/** What a call's first argument is open on: `20</tmp/record>`. */
const targetOf = (args: string): string => /^\d+<(.*?)>(?:[,)]|$)/.exec(args)?.[1] ?? "";

const compileCache = "/build/compile-cache/";
