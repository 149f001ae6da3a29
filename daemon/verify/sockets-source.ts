/**
 * An independent source for the sockets that hold published ports, for `podnet verify`: a program
 * of its own that reads them where the kernel shows them and prints, as JSON, who listens where and
 * whether it is the process that asks. It shares no code with podnet, on purpose.
 *
 *   node daemon/verify/sockets-source.ts PID
 */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/**
 * States of sockets that accept packets from any sender: TCP's LISTEN, and UDP's unconnected state.
 */
const waiting = { tcp: "0A", udp: "07" } as const;

/**
 * The kernel prints addresses as 32-bit words in the host's order, which is little-endian on all
 * that podnet runs on.
 */
function addressText(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) =>
    (word.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16)).reverse(),
  );
  if (bytes.length === 4) return bytes.join(".");
  const groups = Buffer.from(bytes).toString("hex").match(/.{4}/g) ?? [];
  return new URL(`http://[${groups.join(":")}]/`).hostname.slice(1, -1);
}

/** Inodes of the sockets a process has open. */
function socketsOf(pid: string): Set<string> {
  const directory = `/proc/${pid}/fd`;
  const inodes = readdirSync(directory).map((fd) => {
    try {
      return /^socket:\[(\d+)\]$/.exec(readlinkSync(`${directory}/${fd}`))?.[1] ?? "";
    } catch {
      // It has been closed meanwhile.
      return "";
    }
  });
  return new Set(inodes);
}

const own = socketsOf(process.argv[2] ?? String(process.ppid));
const sockets = (["tcp", "tcp6", "udp", "udp6"] as const).flatMap((file) => {
  const protocol = file.startsWith("tcp") ? "tcp" : "udp";
  let text = "";
  try {
    text = readFileSync(`/proc/net/${file}`, "latin1");
  } catch {
    // A host without IPv6.
  }
  return text
    .split("\n")
    .slice(1)
    .flatMap((line) => {
      const [, local = "", , state, , , , , , inode = ""] = line.trim().split(/\s+/);
      const [address = "", port = ""] = local.split(":");
      if (state !== waiting[protocol]) return [];
      const ip = addressText(address);
      return [{ protocol, ip, port: Number.parseInt(port, 16), own: own.has(inode) }];
    });
});
process.stdout.write(JSON.stringify({ sockets }));
