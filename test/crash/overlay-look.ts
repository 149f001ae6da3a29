import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { OverlayPhase as Phase } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { labAddresses } from "../lab/lab.ts";
import { unhealthy } from "./inspect.ts";
import { deviceOf, isPeers, type LeaseValue, type OverlayWorker } from "./overlay-worker.ts";

/** Longest until what failed is put right, or what was asked for is there, milliseconds. */
export const deadlineMs = 20_000;

/** How a host can be in an overlay: with all of it, or with nothing. */
export type Footing = "member" | "left";

/** This host's own leases. */
export async function ownLeases(
  site: OverlayWorker,
): Promise<readonly (readonly [subnet: string, value: LeaseValue])[]> {
  return [...(await site.leases())].filter(([subnet]) => !isPeers(subnet));
}

/**
 * Waits until the host is wholly in the overlay, or wholly out of it; answers which, and what is
 * not so in the end.
 */
export async function converged(
  site: OverlayWorker,
  allowed: readonly Footing[],
): Promise<{ readonly footing: Footing; readonly problems: readonly string[] }> {
  for (const deadline = performance.now() + deadlineMs; ; await delay(30)) {
    const footing: Footing = (await phaseOf(site)) === Phase.LEFT ? "left" : "member";
    const problems = allowed.includes(footing)
      ? await amiss(site, footing)
      : [`the host is ${footing}`];
    if (problems.length === 0 || performance.now() > deadline) return { footing, problems };
  }
}

async function phaseOf({ worker }: OverlayWorker): Promise<Phase | undefined> {
  const { overlays } = await worker.client.overlays.list({});
  return overlays[0]?.phase;
}

/**
 * What is not as it is to be, in etcd, in the kernel, in files, and by what podnetd itself says of
 * it.
 */
async function amiss(site: OverlayWorker, footing: Footing): Promise<readonly string[]> {
  const problems = [
    ...(footing === "member" ? await amissOfMember(site) : await amissOfLeft(site)),
    ...(await amissOfPods(site)),
  ];
  if (problems.length > 0) return problems;
  // Last, for it is dear.
  const { drift, parts } = await site.worker.client.node.diff({});
  return drift ? [JSON.stringify(parts.filter(({ found }) => found.length > 0))] : [];
}

async function amissOfMember(site: OverlayWorker): Promise<readonly string[]> {
  const { worker, backend } = site;
  const { overlays } = await worker.client.overlays.list({});
  const [overlay] = overlays;
  // What podnetd itself says first: while that is not well nothing else needs to be asked, which
  // takes some ten processes.
  if (overlay?.phase !== Phase.HELD) return [`podnetd is in phase ${overlay?.phase}`];
  const { lines } = await worker.client.overlays.diff({});
  if (lines.length > 0) return lines;
  const own = await ownLeases(site);
  const [only] = own;
  if (only === undefined || own.length > 1) return [`leases in etcd: ${JSON.stringify(own)}`];
  const [subnet, value] = only;
  const problems: string[] = [];
  if (overlay.subnets.join() !== subnet) problems.push(`podnetd has ${overlay.subnets.join()}`);
  if (overlay.staleMs !== undefined) problems.push("etcd is not heard");
  problems.push(...overlay.troubles);
  if (value.PublicIP !== labAddresses.hostUplink) problems.push(`its address is ${value.PublicIP}`);
  const base = subnet.replace(/\.0\/24$/, "");
  const mac = await macOf(site, deviceOf[backend]);
  if (backend === "vxlan" && (mac === undefined || value.BackendData?.VtepMAC !== mac))
    problems.push(`the device has ${mac}, its lease ${value.BackendData?.VtepMAC}`);
  if (backend === "udp" && mac === undefined) problems.push("there is no device");
  const bridge = await worker.lab.host.run("ip", "addr", "show", "hyper0");
  const addresses = Array.from(bridge.matchAll(/inet (\S+)/g), ([, address]) => address);
  if (addresses.join() !== `${base}.1/24`) problems.push(`the bridge has ${addresses.join()}`);
  const mtu = { vxlan: 1450, "host-gw": 1500, udp: 1472 }[backend];
  const env = `FLANNEL_NETWORK=10.77.0.0/16\nFLANNEL_SUBNET=${base}.1/24\nFLANNEL_MTU=${mtu}\nFLANNEL_IPMASQ=true\n`;
  const is = existsSync(site.subnetFile) ? readFileSync(site.subnetFile, "utf8") : "absent";
  if (is !== env) problems.push(`subnet.env is ${is}`);
  problems.push(...nextToFile(site, ["subnet.env"]), ...(await amissOfPeers(site)));
  return problems;
}

async function amissOfLeft(site: OverlayWorker): Promise<readonly string[]> {
  const own = await ownLeases(site);
  const problems = own.map(([subnet]) => `lease ${subnet} stays`);
  if (site.backend !== "host-gw" && (await macOf(site, deviceOf[site.backend])) !== undefined)
    problems.push("its device stays");
  const routes = await site.worker.lab.host.run("ip", "route", "show", "proto", "73");
  if (routes !== "") problems.push(`routes stay: ${routes}`);
  const rules = await site.worker.lab.host.run("iptables-save");
  if (/overlay|10\.77\./.test(rules)) problems.push(`rules stay: ${rules}`);
  return [...problems, ...nextToFile(site, [])];
}

/** Files where programs on the host look that are none of these. */
function nextToFile({ subnetFile }: OverlayWorker, wanted: readonly string[]): readonly string[] {
  const directory = path.dirname(subnetFile);
  return (existsSync(directory) ? readdirSync(directory) : [])
    .filter((name) => !wanted.includes(name))
    .map((name) => `file ${name} is left`);
}

/** The kernel's entries for other hosts, alongside what etcd says of them. */
async function amissOfPeers(site: OverlayWorker): Promise<readonly string[]> {
  const { host } = site.worker.lab;
  const peers = [...(await site.leases())].filter(([subnet]) => isPeers(subnet));
  const routes = await host.run("ip", "route", "show", "proto", "73");
  const has = routes.split("\n").filter((line) => line !== "").length;
  const problems: string[] = [];
  const wanted = site.backend === "udp" ? 1 : peers.length;
  if (has !== wanted) problems.push(`${has} routes instead of ${wanted}: ${routes}`);
  for (const [subnet, { PublicIP }] of peers) {
    if (site.backend === "host-gw" && !routes.includes(`${subnet} via ${PublicIP} dev wan0`))
      problems.push(`no route to ${subnet} by ${PublicIP}: ${routes}`);
    if (site.backend === "vxlan" && !routes.includes(`${subnet} via `))
      problems.push(`no route to ${subnet}: ${routes}`);
  }
  if (site.backend !== "vxlan") return problems;
  // (Both are empty while there is no such device.)
  const device = ["dev", deviceOf.vxlan] as const;
  const shown = async (...words: [string, ...string[]]): Promise<readonly string[]> =>
    (await host.run(...words, ...device).catch(() => "")).split("\n");
  const neighbours = (await shown("ip", "neighbour", "show")).filter((line) => line !== "");
  const forwarding = (await shown("bridge", "fdb", "show")).filter((line) =>
    line.includes(" dst "),
  );
  for (const [subnet, { PublicIP, BackendData }] of peers) {
    const mac = BackendData?.VtepMAC ?? "";
    const gateway = subnet.replace(/\/24$/, "");
    if (!neighbours.some((line) => line.startsWith(`${gateway} lladdr ${mac} `)))
      problems.push(`no neighbour for ${subnet}`);
    if (!forwarding.some((line) => line.startsWith(`${mac} dst ${PublicIP} `)))
      problems.push(`no forwarding entry for ${subnet}`);
  }
  for (const entries of [neighbours, forwarding])
    if (entries.length !== peers.length) problems.push(`${peers.length} peers: ${entries.join()}`);
  return problems;
}

/** The pods there are run in this host's subnet, and etcd reports each once. */
async function amissOfPods(site: OverlayWorker): Promise<readonly string[]> {
  const { pods } = await site.worker.client.pods.list({});
  const problems: string[] = [];
  for (const pod of pods) {
    if (pod.reason !== "") problems.push(`${pod.name}: ${pod.reason}`);
    else problems.push(...(await unhealthyUnlessPassing(site, pod)));
  }
  const reported = (await site.records()).filter((key) => key.includes("/pods/"));
  if (reported.length !== pods.length) problems.push(`etcd reports pods: ${reported.join(" ")}`);
  return problems;
}

/** Its agent may not be connected yet. */
async function unhealthyUnlessPassing(
  { worker }: OverlayWorker,
  pod: Parameters<typeof unhealthy>[1],
): Promise<readonly string[]> {
  try {
    return await unhealthy(worker, pod);
  } catch (thrown) {
    if (isPodnetError(thrown)) return [String(thrown)];
    throw thrown;
  }
}

async function macOf({ worker }: OverlayWorker, device: string): Promise<string | undefined> {
  const all = JSON.parse(await worker.lab.host.run("ip", "-j", "link", "show")) as {
    readonly ifname: string;
    readonly address?: string;
  }[];
  const found = all.find(({ ifname }) => ifname === device);
  return found && (found.address ?? "");
}
