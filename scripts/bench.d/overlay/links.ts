import { openHosts } from "../../../test/lab/hosts.ts";
import type { Container } from "../../../test/lab/overlay-container.ts";
import type { OverlayLabHost } from "../../../test/lab/overlay-host.ts";
import { batch } from "../../../test/lab/underlay.ts";
import { type Summary, summarise } from "../../measure.ts";
import { flow } from "./flow.ts";
import { latency, latencyRows } from "./latency.ts";

/** Seconds of one flow. */
const seconds = 3;

/** Two hosts and a container on each; what was measured from the first to the second. */
interface Pair {
  readonly from: Container;
  readonly to: Container;
  readonly gbps: number[];
  readonly pings: Summary[];
}

/**
 * TCP between containers of two hosts by podnetd's overlay, as a share of what it is by the same
 * link made by hand, with no rule on either host. Both pairs of hosts are there at a time, and are
 * measured by turns. Best of so many rounds of each: what the machine does besides falls on single
 * ones. Prints what pings take by either.
 */
export async function ratioToHand(
  backend: string,
  overlay: Readonly<Record<string, unknown>>,
  rounds: number,
): Promise<number> {
  await using stack = new AsyncDisposableStack();
  const open = async (isByHand: boolean): Promise<Pair> => {
    const lab = stack.use(await openHosts({ kinds: ["podnet", "podnet"], overlay }));
    const [first, second] = lab.hosts as [OverlayLabHost, OverlayLabHost];
    await Promise.all([first.start(), second.start()]);
    const [from, to] = await Promise.all([first.container(), second.container()]);
    await from.machine.ping(to.address);
    if (isByHand) {
      await Promise.all([first.end(), second.end()]);
      await byHand(first, second);
      await byHand(second, first);
      await from.machine.ping(to.address);
    }
    return { from, to, gbps: [], pings: [] };
  };
  const [ours, hand] = [await open(false), await open(true)];
  for (let round = 0; round < rounds; round++)
    for (const { from, to, gbps, pings } of round % 2 === 0 ? [ours, hand] : [hand, ours]) {
      pings.push(await latency(from.machine, to.address));
      gbps.push(await flow(from, to, seconds));
    }
  latencyRows(backend, { podnet: ours.pings, "by hand": hand.pings });
  return summarise(ours.gbps).p99 / summarise(hand.gbps).p99;
}

/**
 * What leads from one host to the other's containers, as an administrator would make it; what
 * podnetd made of that is gone.
 */
async function byHand(on: OverlayLabHost, other: OverlayLabHost): Promise<void> {
  const base = (host: OverlayLabHost): string => {
    const { subnet = "" } = host.environment() ?? {};
    return subnet.replace(/\.1\/.*/, ".0");
  };
  const mac = (host: OverlayLabHost): string => `02:00:00:02:00:0${host.n}`;
  await on.machine.run("nft", "flush", "ruleset");
  const routes = await on.machine.run("ip", "route", "show", "proto", "73");
  const tunnels = routes.includes("flannel.1");
  await on.machine.run("ip", "route", "flush", "proto", "73");
  if (!tunnels) {
    await batch(on.machine, [`route add ${base(other)}/24 via ${other.address}`]);
    return;
  }
  await batch(on.machine, [
    "link delete flannel.1",
    `link add hand address ${mac(on)} type vxlan id 1 local ${on.address} dev eth0 dstport 8472 nolearning`,
    `addr add ${base(on)}/32 dev hand`,
    "link set hand up",
    `neigh add ${base(other)} lladdr ${mac(other)} dev hand nud permanent`,
    `route add ${base(other)}/24 via ${base(other)} dev hand onlink`,
  ]);
  const entry = ["fdb", "append", mac(other), "dev", "hand", "dst", other.address] as const;
  await on.machine.run("bridge", ...entry);
}
