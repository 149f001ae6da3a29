/**
 * What a container's attachment costs podnetd in the kernel, without plugin, socket and store:
 * `ensure` and `release` with no other container and with 899, `sweep` a link; alongside it the
 * bare requests that no way of doing it can do without.
 *   scripts/bench attachments [ROUNDS]
 */
import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import { addAddress } from "../../linux/rtnetlink/address.ts";
import { changeLink } from "../../linux/rtnetlink/links/link-requests.ts";
import { addRoute } from "../../linux/rtnetlink/route-requests.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { Attachments } from "../../network/containers/attachments.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { attachmentMark } from "../../network/model/ownership.ts";
import { networkFragment, publishedPort } from "../../test/lab/network.ts";
import { lastLine, row, summarise } from "../measure.ts";

export const description =
  "A container's attachment: ensure, release and sweep, the first and the 900th";

const { signal } = new AbortController();
const rounds = Number(process.argv[2] ?? 60);
/** Containers before the one that is measured. */
const many = 899;
const bridge = "hyper0" as IfName;
const gateway = "10.88.0.1" as Ip;
const everywhere = "0.0.0.0/0" as Cidr;

unshareNetns();
const host = openHostNetwork({ firewall: "nftables", iptables: "auto", chain: "HYPER" });
const attachments = new Attachments(host);
await host.apply(
  networkFragment({
    gateways: [`${gateway}/16` as IpPrefix],
    masquerade: ["10.88.0.0/16" as Cidr],
  }),
  signal,
);
const names = Array.from({ length: many + 1 }, (_, n) => `bench${n}`);
await run(["ip", "-batch", "-"], { stdin: names.map((name) => `netns add ${name}\n`).join("") });

const addressOf = (n: number): Ip => `10.88.${(n + 2) >> 8}.${(n + 2) & 255}` as Ip;
const fragment = (n: number, more: Partial<AttachmentFragment> = {}): AttachmentFragment => ({
  kind: "attachment",
  key: `b${n}`,
  netns: `/run/netns/${names[n]}`,
  hostLink: `pcb${n}` as IfName,
  guestLink: "eth0",
  bridge,
  mac: `0a:58:0a:58:${hex((n + 2) >> 8)}:${hex((n + 2) & 255)}` as Mac,
  mtu: 1500,
  addresses: [`${addressOf(n)}/16` as IpPrefix],
  routes: [{ destination: everywhere, gateway }],
  alias: attachmentMark(`b${n}`),
  isolated: false,
  ...more,
});

function hex(value: number): string {
  return value.toString(16).padStart(2, "0");
}

async function timed(what: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await what();
  return performance.now() - begin;
}

/** Link, port, address and route, and nothing looked at. */
async function bare(netlink: Rtnetlink, n: number): Promise<number> {
  const { netns, hostLink, guestLink, mac } = fragment(n);
  const master = (await netlink.link(bridge))?.index ?? 0;
  const took = await timed(async () => {
    using namespace = NetworkNamespace.open(netns);
    using inside = namespace.enter(() => Rtnetlink.open());
    const peer = { name: guestLink, mac, netnsFd: namespace.fd };
    const { index } = await netlink.addVeth({ name: hostLink, peer });
    await netlink.tryBatch([changeLink(index, { master, up: true })]);
    const guest = (await inside.link(guestLink))?.index ?? 0;
    await inside.tryBatch([
      addAddress(guest, `${addressOf(n)}/16` as IpPrefix),
      changeLink(guest, { up: true }),
      addRoute({ destination: everywhere, gateway, link: guest }),
    ]);
  });
  await netlink.deleteLink(hostLink);
  return took;
}

interface Measured {
  /** Of the processor, for each `ensure`: what a busy machine does not spoil. */
  readonly cpuMs: number[];
  readonly ensure: number[];
  readonly port: number[];
  readonly again: number[];
  readonly release: number[];
  readonly bare: number[];
}

/** The container of the last number, `rounds` times. */
async function measure(): Promise<Measured> {
  const measured: Measured = { cpuMs: [], ensure: [], port: [], again: [], release: [], bare: [] };
  const plain = fragment(many);
  const published = fragment(many, {
    published: [publishedPort({ podIp: addressOf(many), subnet: "10.88.0.0/16" as Cidr })],
  });
  using netlink = Rtnetlink.open();
  for (let i = 0; i < rounds; i++) {
    const before = process.cpuUsage();
    measured.ensure.push(await timed(() => attachments.ensure(plain, signal)));
    const { user, system } = process.cpuUsage(before);
    measured.cpuMs.push((user + system) / 1000);
    measured.again.push(await timed(() => attachments.ensure(plain, signal)));
    measured.release.push(await timed(() => attachments.release([plain])));
    await attachments.sweep();
    measured.port.push(await timed(() => attachments.ensure(published, signal)));
    await attachments.release([published]);
    await attachments.sweep();
    measured.bare.push(await bare(netlink, many));
  }
  return measured;
}

const what = {
  ensure: "ensure",
  cpuMs: "ensure, processor",
  port: "ensure with a port (nftables)",
  again: "ensure again, nothing to do",
  release: "release",
  bare: "the bare requests",
} as const;

const first = await measure();
for (let n = 0; n < many; n++) await attachments.ensure(fragment(n), signal);
const last = await measure();
for (const [name, measured] of [
  ["with no other container", first],
  [`with ${many} others`, last],
] as const) {
  row(`${name}, ms`, "p50", "p99");
  for (const key of Object.keys(what) as (keyof typeof what)[]) {
    const { median, p99 } = summarise(measured[key]);
    row(`  ${what[key]}`, median.toFixed(2), p99.toFixed(2));
  }
}
await attachments.release(Array.from({ length: many }, (_, n) => fragment(n)));
const sweep = await timed(() => attachments.sweep());
row(`  sweep of ${many}, each`, (sweep / many).toFixed(2));
await host[Symbol.asyncDispose]();
attachments[Symbol.dispose]();

const median = (values: readonly number[]): number => summarise(values).median;
console.log(
  lastLine("attachments", {
    ensure_ms: median(first.ensure),
    ensure_900_ms: median(last.ensure),
    release_ms: median(first.release),
    release_900_ms: median(last.release),
    port_900_ms: median(last.port),
    bare_ms: median(first.bare),
    cpu_ms: median(first.cpuMs),
    growth: median(last.cpuMs) / median(first.cpuMs),
  }),
);
