import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { type Ip, ipFromBytes } from "../../core/address.ts";
import { userName } from "../processes/accounts.ts";

export type SocketProtocol = "tcp" | "udp";

/** A socket bound to a port of the host. */
export interface BoundSocket {
  readonly protocol: SocketProtocol;
  readonly address: Ip;
  readonly port: number;
  /** Accepts connections, or datagrams of any sender. */
  readonly listens: boolean;
  readonly uid: number;
  /** 0 when no process has it open any more. */
  readonly inode: string;
}

// include/net/tcp_states.h
const TCP_LISTEN = 0x0a;
const TCP_CLOSE = 0x07;

/** Parses /proc/net/{tcp,udp}{,6} (proc(5)); skips other lines. */
export function parseBoundSockets(text: string, protocol: SocketProtocol): BoundSocket[] {
  return text.split("\n").flatMap((line) => {
    const fields = line.trim().split(/ +/);
    const [, local = "", , state = "", , , , uid = "", , inode = ""] = fields;
    const match = /^([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})$/.exec(local);
    if (match === null || !/^[0-9A-F]{2}$/.test(state)) return [];
    if (!/^\d{1,10}$/.test(uid) || !/^\d{1,20}$/.test(inode)) return [];
    const [, address = "", port = ""] = match;
    const listening = Number.parseInt(state, 16) === (protocol === "tcp" ? TCP_LISTEN : TCP_CLOSE);
    return {
      protocol,
      address: addressOf(address),
      port: Number.parseInt(port, 16),
      listens: listening,
      uid: Number(uid),
      inode,
    };
  });
}

/**
 * The kernel prints each 32-bit word of an address as the number it is to the CPU: little-endian on
 * all of ours. An IPv4 address that an IPv6 socket has is that address.
 */
function addressOf(hex: string): Ip {
  const bytes = Buffer.from(hex, "hex");
  for (let at = 0; at < bytes.length; at += 4) bytes.subarray(at, at + 4).reverse();
  const mapped = bytes.length === 16 && bytes.toString("hex", 0, 12) === `${"0".repeat(20)}ffff`;
  return ipFromBytes(mapped ? bytes.subarray(12) : bytes);
}

/** Every socket of these protocols in the network namespace of this process's main thread. */
export function boundSockets(protocols: readonly SocketProtocol[]): BoundSocket[] {
  return protocols.flatMap((protocol) =>
    ["", "6"].flatMap((family) =>
      parseBoundSockets(read(`/proc/net/${protocol}${family}`), protocol),
    ),
  );
}

/** Empty where the kernel has no such file: without IPv6. */
function read(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

/**
 * The owner of a socket, for people: `nginx (pid 812)`, or its user where podnetd may not see the
 * program. Reads /proc/PID/fd of every process.
 */
export function holderOf({ inode, uid }: Pick<BoundSocket, "inode" | "uid">): string {
  if (inode === "0") return "a connection that has just ended";
  const wanted = `socket:[${inode}]`;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    if (!descriptorsOf(pid).some((fd) => linkAt(`/proc/${pid}/fd/${fd}`) === wanted)) continue;
    // Not its `comm`, which programs set: Node's is the name of its main thread.
    const program = basename(linkAt(`/proc/${pid}/exe`) ?? "a program");
    return `${program.replace(/ \(deleted\)$/, "")} (pid ${pid})`;
  }
  return `a program of ${userName(uid) ?? `user ${uid}`}`;
}

/** None when the process has ended, or is not ours to look into. */
function descriptorsOf(pid: string): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`);
  } catch {
    return [];
  }
}

function linkAt(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
