import { labAddresses } from "../../../test/lab/lab.ts";
import { RelaySite, siteAddresses } from "../../../test/lab/relay-site.ts";
import { row, summarise } from "../../measure.ts";

const { one } = siteAddresses;
/** Bytes of a large answer: a second or so. */
const bytes = 200_000_000;
const connections = 60;
/** A user that owns nothing, as podnetd gives one to its relay. */
const uid = 61_234;

interface Visits {
  /** Bytes a second. */
  readonly throughput: number;
  /** Milliseconds from `connect` to the whole of a short answer. */
  readonly connections: readonly number[];
}

/** A pod's connections by name through the confined relay, and direct to the server. */
export async function measureRelay(rounds: number): Promise<Record<string, number>> {
  await using site = await RelaySite.open(uid);
  await site.policy({ rules: [{ name: "api", action: "allow", domains: ["api.example"] }] });
  await site.answer({ "api.example": [one] }, 3600);
  const ratios: number[] = [];
  const relayed: number[] = [];
  const direct: number[] = [];
  // The way back of direct connections, which nothing masquerades.
  const { internet } = site.lab;
  await internet.run("ip", "route", "add", "192.0.2.0/24", "via", labAddresses.hostUplink);
  await visit(site);
  row("relay and direct, by round", "MB/s", "direct", "ratio", "ms", "direct");
  for (let round = 0; round < rounds; round++) {
    let through: Visits | undefined;
    let straight: Visits | undefined;
    for (const way of round % 2 === 0 ? ["relay", "direct"] : ["direct", "relay"])
      if (way === "relay") through = await visit(site);
      else straight = await site.without(() => visit(site));
    if (through === undefined || straight === undefined) throw new Error("A round without visits");
    ratios.push(through.throughput / straight.throughput);
    relayed.push(...through.connections);
    direct.push(...straight.connections);
    const ms = [through, straight].map((each) => summarise(each.connections).median.toFixed(3));
    const rates = [through.throughput / 1e6, straight.throughput / 1e6];
    row(`round ${round + 1}`, ...rates, (ratios.at(-1) ?? 0).toFixed(3), ...ms);
  }
  const [ours, theirs] = [summarise(relayed), summarise(direct)];
  row("ms of a new connection", "p50", "p99");
  row("relay", ours.median.toFixed(3), ours.p99.toFixed(3));
  row("direct", theirs.median.toFixed(3), theirs.p99.toFixed(3));
  return {
    relay_ratio: summarise(ratios).median,
    relay_ms: ours.median - theirs.median,
    relay_connection_ms: ours.median,
  };
}

const visit = async (site: RelaySite): Promise<Visits> =>
  JSON.parse(
    await site.lab.lan.run(
      process.execPath,
      `${import.meta.dirname}/visits.ts`,
      one,
      "api.example",
      `${bytes}`,
      `${connections}`,
    ),
  ) as Visits;
