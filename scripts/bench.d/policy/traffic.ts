import { run } from "../../../linux/processes/command.ts";
import { guardTables } from "../../../network/firewall/nftables/guard-tables.ts";
import { outsideAddress } from "../../../test/lab/firewall-site.ts";
import { measure } from "../../../test/lab/iperf.ts";
import { row, summarise } from "../../measure.ts";
import { crowded } from "./changes.ts";
import { allowing, type GuardedHost, measured, openGuardedHost } from "./guarded-host.ts";

const seconds = 3;
const pings = 300;

/**
 * What a pod's traffic to a machine outside gets through with guard and policy, and 1,000 other
 * pods that have them, of what it gets on a host without their tables.
 */
export async function measureTraffic(rounds: number): Promise<Record<string, number>> {
  await using plain = await openGuardedHost({ pods: 0, policies: 0 });
  // What is left are bridge, routing and masquerade, as they are without podnet's own tables.
  for (const { name } of guardTables) await run(["nft", "delete", "table", ...name.split(" ")]);
  await using guarded = await openGuardedHost(crowded);
  await guarded.police(measured, allowing("1-65535"));

  const out: number[] = [];
  const back: number[] = [];
  const latency: number[] = [];
  row("of a pod, guarded and without, by round", "out", "back", "ping");
  for (let round = 0; round < rounds; round++) {
    // Who goes first takes turns, too.
    const hosts = round % 2 === 0 ? [guarded, plain] : [plain, guarded];
    const found = new Map<GuardedHost, readonly [number, number, number]>();
    for (const host of hosts)
      found.set(host, [await bits(host, false), await bits(host, true), await roundTrip(host)]);
    const [ours, theirs] = [found.get(guarded) ?? [], found.get(plain) ?? []];
    const ratios = ours.map((figure, i) => figure / (theirs[i] ?? Number.NaN));
    row(`round ${round + 1}, ratio`, ...ratios.map((ratio) => ratio.toFixed(3)));
    out.push(ratios[0] ?? Number.NaN);
    back.push(ratios[1] ?? Number.NaN);
    latency.push(ratios[2] ?? Number.NaN);
  }
  return {
    guard_ratio: summarise([...out, ...back]).median,
    guard_ratio_out: summarise(out).median,
    guard_ratio_back: summarise(back).median,
    guard_latency_ratio: summarise(latency).median,
  };
}

const bits = async ({ site }: GuardedHost, back: boolean): Promise<number> => {
  const arrived = await measure({
    server: site.namespaceOf("outside"),
    client: site.namespaceOf("pod2"),
    address: outsideAddress[4],
    back,
    seconds,
  });
  return arrived.bits;
};

/** Microseconds of a ping's way there and back, on average. */
async function roundTrip({ site }: GuardedHost): Promise<number> {
  const said = await site.inside(
    "pod2",
    ..."ping -q -n -i 0.002".split(" "),
    "-c",
    `${pings}`,
    outsideAddress[4],
  );
  const [, average] = /= [\d.]+\/([\d.]+)\//.exec(said) ?? [];
  return Number(average) * 1000;
}
