/**
 * What a packet of a guest costs by podnet: TCP, UDP and ping between guest and host, guest and
 * guest, guest and outside, with podnet's bridge, tap and rules. Alongside it, turn by turn, two
 * guests by the same command line of QEMU on a bridge made by hand, without rules. Then what the
 * rules alone take of a packet, between namespaces.
 *
 * Two QEMUs of one command line differ by up to a sixth for as long as they run, whoever started
 * them: all is measured with several generations of machines.
 *   scripts/bench datapath [GENERATIONS]
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { run as runCommand } from "../../linux/processes/command.ts";
import { lastLine, row, summarise } from "../measure.ts";
import { type Ends, openByHand } from "./datapath/by-hand.ts";
import { openByPodnet } from "./datapath/by-podnet.ts";
import { type End, port, type Receiver } from "./datapath/ends.ts";
import { measurePackets } from "./datapath/packets.ts";

export const description = "TCP, UDP and ping of guests, next to QEMU on a bridge by hand";

const top = path.resolve(import.meta.dirname, "../..");
/** In each generation of machines. Guests of a set take turns, and each has one that warms up. */
const rounds = { warm: 2, counted: 4 } as const;
/** Of the rules alone. */
const packetRounds = 9;
const milliseconds = 400;
const pings = 400;
/** Of pings that do not count: both ways of starting a program in a guest are over by then. */
const warmMs = 300;

/** Where traffic begins and ends. Nothing outside has a way to a guest of its own accord. */
const ways = {
  "guest to host": ({ guests, host }, turn) => [guests[turn], host],
  "host to guest": ({ guests, host }, turn) => [host, guests[turn]],
  "guest to guest": ({ guests }, turn) => [guests[turn], guests[turn === 0 ? 1 : 0]],
  "guest to outside": ({ guests, outside }, turn) => [guests[turn], outside],
} satisfies Record<string, (ends: Ends, turn: 0 | 1) => readonly [End, End]>;
type Way = keyof typeof ways;
const names = Object.keys(ways) as Way[];
const kinds = ["tcp", "udp", "rtt"] as const;
type Kind = (typeof kinds)[number];

/** Receivers of a set of machines, by the end that each runs at. */
type Receivers = ReadonlyMap<End, Receiver>;

/**
 * MB/s that arrive; for `rtt` pings a millisecond, by the fastest quarter of a burst, so that more
 * is better for all.
 */
async function measure([from, to]: readonly [End, End], receivers: Receivers, kind: Kind) {
  if (kind === "rtt") {
    const times = await from.stream("ping", to.address, `${pings}`, `${warmMs}`);
    return 1000 / (times.map(Number).sort((a, b) => a - b)[pings / 4] ?? Number.NaN);
  }
  const arrived = receivers.get(to)?.next();
  await from.stream(kind, to.address, port, `${milliseconds}`);
  return Number(await arrived);
}

/** Runs the benchmark, prints its tables and returns the last line. */
export async function run(generations: number): Promise<string> {
  const directory = mkdtempSync(path.join(top, "build/bench-"));
  try {
    const program = path.join(directory, "stream");
    const source = path.join(import.meta.dirname, "datapath/stream.c");
    await runCommand(["cc", "-O2", "-Wall", "-Werror", "-static", "-o", program, source]);
    const found: Found = new Map();
    for (let generation = 1; generation <= generations; generation++) {
      const own = path.join(directory, `${generation}`);
      mkdirSync(own);
      await measureGuests(own, program, found);
    }
    const packets = await measurePackets(directory, packetRounds);
    return lastLine("datapath", { ...report(generations, found), ...packets });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** A figure of podnet's and one by hand, measured one after the other. */
interface Pair {
  readonly podnet: number;
  readonly hand: number;
}

/** By way and kind. */
type Found = Map<string, Pair[]>;

/** Starts the machines of both sets, and adds what is measured with them. */
async function measureGuests(directory: string, program: string, found: Found): Promise<void> {
  await using opened = new AsyncDisposableStack();
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
  for (let round = 0; round < rounds.warm + rounds.counted; round++) {
    const turn = round % 2 === 0 ? 0 : 1;
    const order = round % 4 < 2 ? (["podnet", "hand"] as const) : (["hand", "podnet"] as const);
    for (const way of names) {
      for (const kind of kinds) {
        const figures = { podnet: 0, hand: 0 };
        for (const set of order)
          figures[set] = await measure(ways[way](sets[set], turn), receivers[set], kind);
        const key = `${kind}, ${way}`;
        if (round >= rounds.warm) found.set(key, [...(found.get(key) ?? []), figures]);
      }
    }
  }
}

const ratioOf = ({ podnet, hand }: Pair): number => podnet / hand;

/** Prints the table; answers the medians of all pairs of a kind. */
function report(generations: number, found: Found): Record<string, number> {
  const quarters = (pairs: readonly Pair[]): readonly number[] => {
    const sorted = pairs.map(ratioOf).sort((a, b) => a - b);
    return [0.25, 0.75].map((share) => sorted[Math.floor(sorted.length * share)] ?? Number.NaN);
  };
  console.log(`${generations} generations of machines, ${rounds.counted} rounds each`);
  console.log("MB/s that arrive, pings a millisecond");
  row("", "podnet", "by hand", "ratio", "half: from", "to");
  for (const [key, pairs] of found) {
    const columns = [pairs.map(({ podnet }) => podnet), pairs.map(({ hand }) => hand)];
    const medians = [...columns, pairs.map(ratioOf)].map((each) => summarise(each).median);
    row(key, ...[...medians, ...quarters(pairs)].map((each) => each.toFixed(3)));
  }
  const ratio = (kind: Kind): number =>
    summarise(names.flatMap((way) => (found.get(`${kind}, ${way}`) ?? []).map(ratioOf))).median;
  return { tcp_ratio: ratio("tcp"), udp_ratio: ratio("udp"), rtt_ratio: ratio("rtt") };
}

if (import.meta.main) {
  console.log(await run(Number(process.argv[2] ?? 8)));
}
