/**
 * How far what iperf3 receives is from the limit that was set, over 10 s: TCP and UDP, towards a
 * container and from it, next to the queues that one makes by hand with tc; what a limit costs to
 * set and to change; and what the link for the way out takes of memory.
 *   scripts/bench rates [SECONDS]
 */
import { readFileSync } from "node:fs";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import type { PortRates } from "../../network/model/rates.ts";
import { AttachmentSite } from "../../test/lab/attachment-site.ts";
import { measure } from "../../test/lab/iperf.ts";
import { ip } from "../../test/lab/network.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description = "Limits: deviation by iperf3, with plain tc as peer, and their cost";

const { signal } = new AbortController();
const seconds = Number(process.argv[2] ?? 10);
const bandwidth = 100e6;
const packets = 10_000;
const address = "192.168.123.2";
const host = "pc2" as IfName;

await using site = await AttachmentSite.open();
await site.container(2);
const limit = async (rates?: PortRates): Promise<void> => {
  await site.attachments.ensure(site.fragment(2, rates === undefined ? {} : { rates }), signal);
};

const tc = (text: string) => run(["tc", ...text.split(" ")]);
/** As manuals have it: a burst of a 50th of a second, and packets that wait 25 ms at the most. */
const bucket = (link: string) =>
  tc(`qdisc add dev ${link} root tbf rate 100mbit burst 250kb latency 25ms`);
const byHand = {
  async toGuest() {
    await bucket(host);
    return () => tc(`qdisc del dev ${host} root`);
  },
  async fromGuest() {
    await ip("link add hand0 type ifb");
    await ip("link set hand0 up");
    await bucket("hand0");
    await tc(`qdisc add dev ${host} ingress`).catch(() => {});
    const match = "parent ffff: protocol all prio 1 u32 match u8 0 0";
    await tc(`filter add dev ${host} ${match} action mirred egress redirect dev hand0`);
    return async () => {
      await tc(`filter del dev ${host} ingress`);
      await ip("link del hand0");
    };
  },
} as const;

const directions = { in: "toGuest", out: "fromGuest" } as const;
const streams = {
  tcp: {},
  udp: { udp: { bitsPerSecond: 2 * bandwidth } },
  pps: { udp: { bitsPerSecond: 4 * packets * 64 * 8, bytes: 64 } },
} as const;
type Stream = keyof typeof streams;

/** Per cent that what arrives is above the setting, or below. */
async function deviation(stream: Stream, direction: keyof typeof directions): Promise<number> {
  const arrived = await measure({
    server: site.name(2),
    client: undefined,
    address,
    back: direction === "out",
    seconds,
    ...streams[stream],
  });
  const [is, should] = stream === "pps" ? [arrived.packets, packets] : [arrived.bits, bandwidth];
  return (is / should - 1) * 100;
}

const figures: Record<string, number> = {};
row(`per cent off the setting, ${seconds} s`, "podnet", "tc by hand");
for (const direction of ["in", "out"] as const) {
  const way = directions[direction];
  for (const stream of ["tcp", "udp", "pps"] as const) {
    await limit({
      [way]: stream === "pps" ? { packetsPerSecond: packets } : { bitsPerSecond: bandwidth },
    });
    const ours = await deviation(stream, direction);
    await limit();
    figures[`${stream}_${direction}`] = ours;
    // (tc has no packet rate without the action police.)
    if (stream === "pps") {
      row(`${stream} ${direction}`, ours, "-");
      continue;
    }
    const undo = await byHand[way]();
    const hand = await deviation(stream, direction);
    await undo();
    figures[`tc_${stream}_${direction}`] = hand;
    row(`${stream} ${direction}`, ours, hand);
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}
for (const [direction, way] of Object.entries(directions)) {
  const made: number[] = [];
  const changed: number[] = [];
  const gone: number[] = [];
  for (let i = 0; i < 50; i++) {
    made.push(await timed(() => limit({ [way]: { bitsPerSecond: bandwidth } })));
    changed.push(await timed(() => limit({ [way]: { bitsPerSecond: 2 * bandwidth } })));
    gone.push(await timed(() => limit()));
  }
  const [set, change, end] = [made, changed, gone].map((each) => summarise(each).median);
  row(`ms: a limit ${direction} set, changed, gone`, set ?? 0, change ?? 0, end ?? 0);
  figures[`set_${direction}_ms`] = set ?? 0;
  figures[`change_${direction}_ms`] = change ?? 0;
  figures[`gone_${direction}_ms`] = end ?? 0;
}

/** Kernel memory in KiB: what a link takes is in slabs and in per-processor areas. */
const kernelKib = (): number =>
  ["Slab", "Percpu", "VmallocUsed"]
    .map((key) =>
      Number(
        new RegExp(`^${key}:\\s+(\\d+)`, "m").exec(readFileSync("/proc/meminfo", "utf8"))?.[1],
      ),
    )
    .reduce((sum, each) => sum + each, 0);
const links = 200;
const before = kernelKib();
for (let i = 0; i < links; i++) await ip(`link add many${i} type ifb`);
figures["ifb_kib"] = (kernelKib() - before) / links;
row("KiB that an ifb takes", figures["ifb_kib"]);
console.log(lastLine("rates", figures));
