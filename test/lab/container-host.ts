import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { type Machine, machine, machineBehind } from "./lab.ts";
import { until } from "./until.ts";

const exec = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../..");
/** Debian's runtimes and plugins, unpacked by scripts/unpack-cni. */
export const unpacked = path.join(top, "build/cni");
const libraries = ["usr/lib", "lib"].map((where) => `${unpacked}/${where}/x86_64-linux-gnu`);

/** What the host and its neighbour have on the wire between them (RFC 5737). */
export const containerHostAddresses = { host: "192.0.2.1", lan: "192.0.2.20" } as const;

/** A machine with a mount namespace of its own too: runtimes have fixed paths. */
export interface ContainerHost extends Machine, AsyncDisposable {
  /** Everybody sees it under this path. */
  readonly directory: string;
  /** Where the test finds a file of the host's, such as `/etc/cni/net.d`. */
  file(name: string): string;
  /** Writes a list of plugins where every runtime looks for it. */
  writeList(name: string, list: unknown): void;
  /** Puts a plugin alongside those of Debian. */
  addPlugin(name: string, program: string): void;
  /** A neighbour on a wire of his own, who has no route but to the host's own address there. */
  readonly lan: Machine;
}

// What is mounted below /sys twice would mislead runc, which takes what it finds first. Control
// groups stay the sandbox's.
const furnish = `
  umount -n -R -l /sys && while umount -n -R -l /sys 2>/dev/null; do :; done
  mount -n -t sysfs sysfs /sys && mount -n --rbind /run/cgroup /sys/fs/cgroup || exit
  for covered in etc var/lib; do
    mkdir -p "$1/upper/$covered" "$1/work/$covered" && mount -n -t overlay overlay "/$covered" \\
      -o "lowerdir=/$covered,upperdir=$1/upper/$covered,workdir=$1/work/$covered" || exit
  done
  for own in /run/netns /run/containerd /run/podnet /opt; do mkdir -p $own && mount -n -t tmpfs tmpfs $own || exit; done
  mkdir -p /etc/cni/net.d /opt/cni/bin /etc/containers && ln -s "$2"/usr/lib/cni/* /opt/cni/bin/ &&
  cp -r "$2"/etc/containers/. /etc/containers/ && ip link set dev lo up &&
  echo 1 >/proc/sys/net/ipv4/ip_forward && echo ready && exec sleep infinity`;

let hosts = 0;

/** Opens one in the sandbox; whatever still runs there at its end is ended with it. */
export async function openContainerHost(directory: string): Promise<ContainerHost> {
  if (process.env["PODNET_SANDBOX"] !== "1")
    throw new Error("Containers need namespaces and rules; run this below scripts/sandbox");
  if (!existsSync(path.join(unpacked, "packages")))
    throw new Error("There are no container runtimes; run scripts/unpack-cni");
  mkdirSync(directory, { recursive: true });
  await using made = new AsyncDisposableStack();
  const words = ["--mount", "--net", "sh", "-c", furnish, "sh", directory, unpacked];
  const holder = spawn("unshare", words, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(holder, "exit");
  const pid = holder.pid as number;
  made.defer(async () => {
    await endAllAlongside(holder);
    await ended;
  });
  await Promise.race([once(holder.stdout, "data"), ended]);
  if (holder.exitCode !== null) throw new Error(`No host for containers: exit ${holder.exitCode}`);
  const host = machineBehind(
    `containers-${pid}`,
    `/proc/${pid}/ns/net`,
    ["nsenter", `--target=${pid}`, "--mount", "--net"],
    {
      PATH: `${unpacked}/usr/bin:${unpacked}/usr/sbin:${process.env["PATH"]}`,
      LD_LIBRARY_PATH: libraries.join(":"),
    },
  );
  const lan = made.use(await openNeighbour(host, pid));
  const file = (name: string): string => path.join(`/proc/${pid}/root`, name);
  const owned = made.move();
  return {
    ...host,
    directory,
    lan,
    file,
    writeList: (name, list) => writeFileSync(file(`/etc/cni/net.d/${name}`), JSON.stringify(list)),
    addPlugin: (name, program) => symlinkSync(program, file(`/opt/cni/bin/${name}`)),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function openNeighbour(host: Machine, pid: number): Promise<Machine & AsyncDisposable> {
  const name = `containers-lan-${hosts++}`;
  await exec("ip", ["netns", "add", name]);
  const lan = machine(name);
  const link = ["link", "add", "eth0", "type", "veth", "peer", "name", "lan0", "netns", `${pid}`];
  await exec("ip", ["-n", name, ...link]);
  for (const [where, dev, address] of [
    [host, "lan0", containerHostAddresses.host],
    [lan, "eth0", containerHostAddresses.lan],
  ] as const) {
    await where.run("ip", "addr", "add", `${address}/24`, "dev", dev);
    await where.run("ip", "link", "set", "dev", dev, "up");
  }
  return {
    ...lan,
    [Symbol.asyncDispose]: async () => {
      await exec("ip", ["netns", "del", name]);
    },
  };
}

/** Ends every process in the mount namespace of this one: shims outlive whoever started them. */
async function endAllAlongside(holder: ChildProcess): Promise<void> {
  const mounts = (pid: string): string | undefined => {
    try {
      return readlinkSync(`/proc/${pid}/ns/mnt`);
    } catch {
      return undefined; // It has ended.
    }
  };
  const own = mounts(`${holder.pid}`);
  const others = (): string[] =>
    own === undefined
      ? []
      : readdirSync("/proc").filter((pid) => pid !== `${holder.pid}` && mounts(pid) === own);
  await until("the host's processes to end", () => {
    const left = others();
    for (const pid of left) process.kill(Number(pid), "SIGKILL");
    return left.length === 0;
  });
  holder.kill("SIGKILL");
}
