/**
 * One TCP connection through an overlay of the backend udp, host to host: podnet's tunnel at both
 * ends, at one, and flannel's method in C (test/peers/udp-loop.c) at both. Two network namespaces
 * on one veth pair, on this machine's processors: all share them, the sender and the receiver of
 * the stream as well. Rounds alternate, so that what else runs is in all of them.
 *   scripts/bench overlay-udp [ROUNDS [SECONDS]]
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseCidr, parseIp } from "../../core/address.ts";
import { run as command } from "../../linux/processes/command.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import { UdpTunnel } from "../../network/overlay/udp/tunnel.ts";
import { machine } from "../../test/lab/lab.ts";
import { lastLine, row, type Summary, summarise } from "../measure.ts";
import { latency, latencyRows } from "./overlay/latency.ts";

export const description = "TCP through the overlay backend udp, alongside flannel's method in C";

type End = "podnet" | "c";

const peers = path.resolve(import.meta.dirname, "../../test/peers");
const built = mkdtempSync(path.join(tmpdir(), "podnet-bench-"));
const port = 8285;

async function build(name: string): Promise<string> {
  const program = path.join(built, name);
  await command(["gcc", "-O2", path.join(peers, `${name}.c`), "-o", program]);
  return program;
}

const host = (n: number): string => `bench${n}`;
const other = (n: number): number => 3 - n;

/** (What it held, a port and a device, is free then.) */
async function ended(child: ChildProcess): Promise<void> {
  const isRunning = child.exitCode === null && child.signalCode === null;
  if (isRunning && child.kill("SIGKILL")) await once(child, "exit");
}

/** A process in a host's namespace that has said that it is ready, and what it says next. */
async function inHost(
  n: number,
  ...words: readonly string[]
): Promise<AsyncDisposable & { line: Promise<string> }> {
  const child = spawn("ip", ["netns", "exec", host(n), ...words], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const { stdout } = child;
  await once(stdout, "data");
  const line = once(stdout, "data").then(([bytes]) => String(bytes));
  line.catch(() => {});
  return { line, [Symbol.asyncDispose]: () => ended(child) };
}

/** One end of the tunnel, with its device as a host has it. */
async function openEnd(n: number, end: End, loop: string): Promise<AsyncDisposable> {
  await using made = new AsyncDisposableStack();
  if (end === "c") {
    const peer = [`10.77.${other(n)}.0`, "24", `192.0.2.${other(n)}`];
    const own = [`192.0.2.${n}`, String(port), `10.77.${n}.0`];
    made.use(await inHost(n, loop, "flannel0", ...own, ...peer));
  } else {
    const birth = { publicIp: parseIp(`192.0.2.${n}`), port, answersFrom: parseIp("10.77.0.0") };
    const tunnel = withNetns(`/run/netns/${host(n)}`, () => new UdpTunnel(birth, () => {}));
    made.use(tunnel);
    await tunnel.ready;
    tunnel.setPeers(
      new Map([[parseCidr(`10.77.${other(n)}.0/24`), parseIp(`192.0.2.${other(n)}`)]]),
    );
  }
  await command(["ip", "-n", host(n), "-batch", "-"], {
    stdin: `addr add 10.77.${n}.0/32 dev flannel0\nlink set flannel0 mtu 1472 up\nroute add 10.77.0.0/16 dev flannel0\n`,
  });
  return made.move();
}

interface Measured {
  /** From the first host to the second, once it is at full speed. */
  readonly gbps: number;
  /** Before, with nothing else on the way. */
  readonly pings: Summary;
}

async function measure(
  ends: readonly [End, End],
  tools: Tools,
  seconds: number,
): Promise<Measured> {
  await using _first = await openEnd(1, ends[0], tools.loop);
  await using _second = await openEnd(2, ends[1], tools.loop);
  const pings = await latency(machine(host(1)), "10.77.2.0");
  await using receiver = await inHost(2, tools.load, "receive", "5001", "0.5", String(seconds));
  const sender = spawn("ip", ["netns", "exec", host(1), tools.load, "send", "10.77.2.0", "5001"]);
  const bits = Number(await receiver.line);
  await ended(sender);
  return { gbps: bits / 1e9, pings };
}

interface Tools {
  readonly loop: string;
  readonly load: string;
}

const pairs = {
  "podnet to podnet": ["podnet", "podnet"],
  "podnet to C": ["podnet", "c"],
  "C to podnet": ["c", "podnet"],
  "C to C": ["c", "c"],
} as const satisfies Record<string, readonly [End, End]>;

/** Measures each pair in turn, prints the table and returns the last line. */
export async function run(rounds: number, seconds: number): Promise<string> {
  const tools = { loop: await build("udp-loop"), load: await build("tcp-load") };
  for (const n of [1, 2]) await command(["ip", "netns", "add", host(n)]);
  await command(["ip", "-batch", "-"], {
    stdin: `link add eth0 netns ${host(1)} type veth peer name eth0 netns ${host(2)}\n`,
  });
  for (const n of [1, 2])
    await command(["ip", "-n", host(n), "-batch", "-"], {
      stdin: `link set lo up\naddr add 192.0.2.${n}/24 dev eth0\nlink set eth0 up\n`,
    });
  const samples = new Map<string, number[]>();
  const pinged = new Map<string, Summary[]>();
  for (let round = 0; round < rounds; round++)
    for (const [name, ends] of Object.entries(pairs)) {
      const { gbps, pings } = await measure(ends, tools, seconds);
      pinged.set(name, [...(pinged.get(name) ?? []), pings]);
      samples.set(name, [...(samples.get(name) ?? []), gbps]);
    }
  row("Gbit/s", "median", "best");
  const medians = new Map<string, number>();
  for (const [name, all] of samples) {
    medians.set(name, summarise(all).median);
    row(name, (medians.get(name) ?? 0).toFixed(2), Math.max(...all).toFixed(2));
  }
  latencyRows("udp", {
    podnet: pinged.get("podnet to podnet") ?? [],
    "flannel's method in C": pinged.get("C to C") ?? [],
  });
  const gbps = medians.get("podnet to podnet") ?? 0;
  const c = medians.get("C to C") ?? 0;
  return lastLine("overlay-udp", {
    gbps,
    vs_c: gbps / c,
    against_c_gbps: medians.get("podnet to C") ?? 0,
    from_c_gbps: medians.get("C to podnet") ?? 0,
    c_gbps: c,
  });
}

if (import.meta.main) {
  const [rounds = 3, seconds = 2] = process.argv.slice(2).map(Number);
  console.log(await run(rounds, seconds));
}
