/**
 * What the kernel's part of an overlay costs: peers at join (device, neighbours, forwarding
 * entries, routes), a second look that finds nothing to do, one more peer by a delta; alongside
 * them the same entries by `ip` and `bridge` in batch mode, the fewest processes that can make
 * them. In a namespace of its own, without etcd and rules.
 *   scripts/bench overlay-kernel [PEERS...]
 */
import { macFromBytes, parseCidr, parseIp } from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import { run as command } from "../../linux/processes/command.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import type { OverlayDesired, OverlayPeer, OverlayDelta } from "../../network/model/overlay.ts";
import { Overlays } from "../../network/overlay/overlays.ts";
import type { OverlayRules } from "../../network/bridge/overlay-rules.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "Peers of an overlay into the kernel: at join, a second look, one more";

const { signal } = new AbortController();
const rounds = 3;

const noRules: OverlayRules = {
  ensure: () => Promise.resolve([]),
  follow: () => Promise.resolve([]),
  diff: () => Promise.resolve([]),
  remove: () => Promise.resolve([]),
  describe: () => [],
};

const peer = (n: number): OverlayPeer => ({
  subnet: parseCidr(`10.${64 + (n >> 8)}.${n & 255}.0/24`),
  publicIp: parseIp(`172.${16 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`),
  vtepMac: macFromBytes(Uint8Array.of(2, 0, 0, 0, n >> 8, n & 255)),
});

const overlay = (peers: readonly OverlayPeer[]): OverlayDesired => ({
  name: "bench",
  backend: { kind: "vxlan", vni: 1, port: 0, gbp: false, learning: false, directRouting: false },
  parent: parseIfName("eth0"),
  sides: [
    {
      network: parseCidr("10.64.0.0/10"),
      subnet: parseCidr("10.127.0.0/24"),
      publicIp: parseIp("192.0.2.1"),
      vtep: { device: parseIfName("flannel.1") },
      peers,
    },
  ],
  forward: true,
});

const timed = async (body: () => Promise<unknown>): Promise<number> => {
  const start = performance.now();
  await body();
  return performance.now() - start;
};

const rssMib = (): number => process.memoryUsage.rss() / (1 << 20);

/** The entries by hand. */
async function byHand(peers: readonly OverlayPeer[]): Promise<number> {
  const gateway = ({ subnet }: OverlayPeer): string => subnet.slice(0, subnet.indexOf("/"));
  const neighbours = peers.map(
    (each) => `neigh replace ${gateway(each)} lladdr ${each.vtepMac} dev flannel.1 nud permanent`,
  );
  const entries = peers.map(
    ({ vtepMac, publicIp }) =>
      `fdb replace ${vtepMac} dev flannel.1 dst ${publicIp} self permanent`,
  );
  const routes = peers.map(
    (each) => `route replace ${each.subnet} via ${gateway(each)} dev flannel.1 onlink`,
  );
  return timed(async () => {
    await command(["ip", "-batch", "-"], { stdin: `${neighbours.join("\n")}\n` });
    await command(["bridge", "-batch", "-"], { stdin: `${entries.join("\n")}\n` });
    await command(["ip", "-batch", "-"], { stdin: `${routes.join("\n")}\n` });
  });
}

/** Measures each number of peers, prints the table and returns the last line. */
export async function run(counts: readonly number[]): Promise<string> {
  unshareNetns();
  await command(["ip", "-batch", "-"], {
    stdin:
      "link set lo up\nlink add eth0 type veth peer name far\nlink set far up\naddr add 192.0.2.1/24 dev eth0\nlink set eth0 up\n",
  });
  await using overlays = new Overlays(noRules);
  row("", "join", "again", "one more", "by hand", "RSS MiB");
  const figures: Record<string, number> = {};
  for (const count of counts) {
    const joins: number[] = [];
    const looks: number[] = [];
    const deltas: number[] = [];
    const hands: number[] = [];
    const peers = Array.from({ length: count }, (_, n) => peer(n));
    for (let round = 0; round < rounds; round++) {
      joins.push(await timed(() => overlays.ensure(overlay(peers), signal)));
      looks.push(await timed(() => overlays.ensure(overlay(peers), signal)));
      const delta: OverlayDelta = new Map([[4, { removed: [], added: [peer(count)] }]]);
      deltas.push(await timed(() => overlays.follow(overlay([]).name, delta, signal)));
      await overlays.sweep([], signal);
      await overlays.ensure(overlay([]), signal);
      hands.push(await byHand(peers));
      await overlays.sweep([], signal);
    }
    const of = (samples: readonly number[]): number => summarise(samples).median;
    row(`${count} peers, milliseconds`, of(joins), of(looks), of(deltas), of(hands), rssMib());
    figures[`peers${count}_ms`] = of(joins);
    figures[`look${count}_ms`] = of(looks);
    figures[`delta${count}_ms`] = of(deltas);
    figures[`hand${count}_ms`] = of(hands);
  }
  return lastLine("overlay-kernel", { ...figures, rss_mib: rssMib() });
}

if (import.meta.main) {
  const counts = process.argv.slice(2).map(Number);
  console.log(await run(counts.length === 0 ? [1000, 4000] : counts));
}
