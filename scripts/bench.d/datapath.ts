/**
 * What a packet of a guest costs by podnet: TCP, UDP and ping between guest and host, guest and
 * guest, guest and outside, with podnet's bridge, tap and rules. Alongside it, turn by turn, two
 * guests by the same command line of QEMU on a bridge made by hand, without rules. Then what the
 * rules alone take of a packet, between namespaces.
 *   scripts/bench datapath [ROUNDS]
 */
import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { run as runCommand } from "../../linux/processes/command.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { type Ends, openByHand } from "./datapath/by-hand.ts";
import { openByPodnet } from "./datapath/by-podnet.ts";
import { type End, port, type Receiver } from "./datapath/ends.ts";
import { measurePackets } from "./datapath/packets.ts";

export const description = "TCP, UDP and ping of guests, next to QEMU on a bridge by hand";

const top = path.resolve(import.meta.dirname, "../..");
const milliseconds = 1500;
const pings = 100;

/** Where traffic begins and ends. Nothing outside has a way to a guest of its own accord. */
const ways = {
  "guest to host": ({ guests, host }) => [guests[0], host],
  "host to guest": ({ guests, host }) => [host, guests[0]],
  "guest to guest": ({ guests }) => [guests[0], guests[1]],
  "guest to outside": ({ guests, outside }) => [guests[0], outside],
} satisfies Record<string, (ends: Ends) => readonly [End, End]>;
type Way = keyof typeof ways;
const names = Object.keys(ways) as Way[];
const kinds = ["tcp", "udp", "rtt"] as const;
type Kind = (typeof kinds)[number];

/** Receivers of a set of machines, by the end that each runs at. */
type Receivers = ReadonlyMap<End, Receiver>;

/** MB/s that arrive; for `rtt` pings a millisecond, so that more is better for all. */
async function measure(ends: Ends, receivers: Receivers, way: Way, kind: Kind): Promise<number> {
  const [from, to] = ways[way](ends);
  if (kind === "rtt") {
    const times = await from.stream("ping", to.address, `${pings}`);
    return 1000 / summarise(times.map(Number)).median;
  }
  const arrived = receivers.get(to)?.next();
  await from.stream(kind, to.address, port, `${milliseconds}`);
  return Number(await arrived);
}

/** Runs the benchmark, prints its tables and returns the last line. */
export async function run(rounds: number): Promise<string> {
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  try {
    const guests = await measureGuests(directory, rounds);
    return lastLine("datapath", { ...guests, ...(await measurePackets(directory, rounds)) });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function measureGuests(directory: string, rounds: number): Promise<Record<string, number>> {
  await using opened = new AsyncDisposableStack();
  const program = path.join(directory, "stream");
  const source = path.join(import.meta.dirname, "datapath/stream.c");
  await runCommand(["cc", "-O2", "-Wall", "-Werror", "-static", "-o", program, source]);
  const sets = {
    podnet: await openByPodnet(directory, program, opened),
    hand: await openByHand(directory, program, opened),
  };
  const receiving = async ({ guests, host, outside }: Ends): Promise<Receivers> => {
    const all = new Map<End, Receiver>();
    for (const end of [...guests, host, outside]) all.set(end, opened.use(await end.receiver()));
    return all;
  };
  const receivers = { podnet: await receiving(sets.podnet), hand: await receiving(sets.hand) };
  type Set = keyof typeof sets;
  const found = new Map<string, number[]>();
  const of = (set: Set, way: Way, kind: Kind): number[] => {
    const key = `${set} ${way} ${kind}`;
    const figures = found.get(key) ?? [];
    found.set(key, figures);
    return figures;
  };
  // The first round warms up and does not count.
  for (let round = 0; round <= rounds; round++) {
    const order: Set[] = round % 2 === 0 ? ["podnet", "hand"] : ["hand", "podnet"];
    for (const way of names) {
      for (const kind of kinds) {
        for (const set of order) {
          const figure = await measure(sets[set], receivers[set], way, kind);
          if (round > 0) of(set, way, kind).push(figure);
        }
      }
    }
  }

  /** Of pairs that were measured one after the other, by round. */
  const ratios = (way: Way, kind: Kind): number[] =>
    of("podnet", way, kind).map((ours, i) => ours / (of("hand", way, kind)[i] ?? Number.NaN));
  console.log(`${rounds} rounds; MB/s that arrive, pings a millisecond`);
  row("", "podnet", "by hand", "ratio");
  for (const kind of kinds) {
    for (const way of names) {
      const figures = [of("podnet", way, kind), of("hand", way, kind), ratios(way, kind)];
      const cells = figures.map((each) => summarise(each).median.toFixed(3));
      row(`${kind}, ${way}`, ...cells);
    }
  }
  const ratio = (kind: Kind): number => summarise(names.flatMap((way) => ratios(way, kind))).median;
  return { tcp_ratio: ratio("tcp"), udp_ratio: ratio("udp"), rtt_ratio: ratio("rtt") };
}

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 9)));
}
