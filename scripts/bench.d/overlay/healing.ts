import { setTimeout as delay } from "node:timers/promises";
import { type HostsLab, openHosts } from "../../../test/lab/hosts.ts";
import type { OverlayLabHost } from "../../../test/lab/overlay-host.ts";
import { underlayAddress } from "../../../test/lab/underlay.ts";
import { until } from "../../../test/lab/until.ts";
import { row, summarise } from "../../measure.ts";

/**
 * The number of repairs of one thing within a minute after which podnetd takes its removal for a
 * fight, and pauses.
 */
const tries = 5;
/** Between podnetd's looks at what the kernel does not report, milliseconds: half of `drift_s`. */
const lookMs = 2500;
/** The longest wait, in milliseconds. */
const limitMs = 60_000;

type Backend = "vxlan" | "host-gw";
type Firewall = "iptables" | "nftables";

/** Something of the overlay's that is taken away from podnetd. */
interface Wound {
  readonly title: string;
  /** For the shell: by what it is taken, for try 1 and so on. */
  readonly inflict: (n: number) => string;
  /** For the shell: what shows it, the same before and after. */
  readonly show: (n: number) => string;
}

/** Numbers of hosts that are none, and of their subnets. */
const foreigners = Array.from({ length: tries }, (_, index) => index + 1);
const macOf = (n: number): string => `02:00:00:00:00:0${n}`;
const addressOf = (n: number): string => underlayAddress(100 + n);

async function addForeign({ etcd, prefix }: HostsLab, backend: Backend): Promise<void> {
  for (const n of foreigners) {
    const data = backend === "vxlan" ? { BackendData: { VNI: 1, VtepMAC: macOf(n) } } : {};
    const value = { PublicIP: addressOf(n), BackendType: backend, ...data };
    await etcd.etcdctl("put", `${prefix}/subnets/10.77.${n}.0-24`, JSON.stringify(value));
  }
}

const route: Wound = {
  title: "route",
  inflict: (n) => `ip route del 10.77.${n}.0/24`,
  show: (n) => `ip route show 10.77.${n}.0/24`,
};
const ofDevice: readonly Wound[] = [
  {
    title: "neighbour",
    inflict: (n) => `ip neigh del 10.77.${n}.0 dev flannel.1`,
    show: (n) => `ip neigh show 10.77.${n}.0 dev flannel.1`,
  },
  {
    title: "FDB entry",
    inflict: (n) => `bridge fdb del ${macOf(n)} dev flannel.1`,
    show: (n) => `bridge fdb show dev flannel.1 | grep ${macOf(n)}`,
  },
  {
    title: "device, with all that is on it",
    inflict: () => "ip link del flannel.1",
    // (Its MAC is among what is shown.)
    show: () =>
      "ip -br link show flannel.1; ip route show dev flannel.1; ip neigh show dev flannel.1; bridge fdb show dev flannel.1",
  },
];
const ofFirewall: Readonly<Record<Firewall, Wound>> = {
  iptables: {
    title: "iptables rule",
    inflict: () =>
      'iptables -D FORWARD -s 10.77.0.0/16 -m comment --comment "podnet:overlay:flannel" -j ACCEPT',
    show: () => "iptables -S",
  },
  nftables: {
    title: "nft rule",
    inflict: () =>
      `nft delete rule inet podnet overlays handle $(nft -a list chain inet podnet overlays | sed -n 's/.*handle //p' | tail -1)`,
    show: () => "nft -s list chain inet podnet overlays",
  },
};

/**
 * Prints how long it takes until what others take of an overlay is there again: as it was, seen
 * from outside.
 */
export async function healingRows(): Promise<void> {
  row("healed after, ms", "median", "worst", "tries");
  for (const backend of ["vxlan", "host-gw"] as const)
    for (const firewall of ["iptables", "nftables"] as const) await measure(backend, firewall);
}

async function measure(backend: Backend, firewall: Firewall): Promise<void> {
  await using lab = await openHosts({
    kinds: ["podnet"],
    overlay: range(backend),
    podnetConfig: `firewall = "${firewall}"\n`,
  });
  const [host] = lab.hosts as [OverlayLabHost];
  await addForeign(lab, backend);
  await host.start();
  await host.joined();
  const file: Wound = {
    title: "subnet.env",
    inflict: () => `rm ${host.subnetFile}`,
    show: () => `cat ${host.subnetFile}`,
  };
  const wounds =
    firewall === "iptables"
      ? [route, ...(backend === "vxlan" ? ofDevice : []), file, ofFirewall.iptables]
      : [ofFirewall.nftables];
  await converged(host);
  for (const wound of wounds) {
    const times: number[] = [];
    for (const n of foreigners) times.push(await healing(host, wound, n));
    const { median } = summarise(times);
    row(`  ${backend}, ${wound.title}`, median, Math.max(...times), String(times.length));
  }
}

/** Other hosts have the first subnets, the host that is measured one of the others. */
const range = (backend: Backend): Readonly<Record<string, unknown>> => ({
  Network: "10.77.0.0/16",
  SubnetMin: "10.77.100.0",
  Backend: { Type: backend },
});

const sorted = (text: string): string => text.split("\n").toSorted().join("\n");

const shown = async ({ machine }: OverlayLabHost, { show }: Wound, n: number): Promise<string> =>
  // What shows nothing fails, too.
  sorted(await machine.run("sh", "-c", `{ ${show(n)}; } 2>&1 || true`));

/** All peers have been made. */
async function converged(host: OverlayLabHost): Promise<void> {
  for (const n of foreigners)
    await until(
      `the route to host ${n}`,
      async () => (await shown(host, route, n)).trim() !== "",
      limitMs,
      () => host.log(),
    );
}

async function healing(host: OverlayLabHost, wound: Wound, n: number): Promise<number> {
  // At another moment between two looks each time.
  await delay((n / tries) * lookMs);
  const before = await shown(host, wound, n);
  const begin = performance.now();
  // Rejects when there is nothing to take.
  await host.machine.run("sh", "-c", wound.inflict(n));
  while ((await shown(host, wound, n)) !== before) {
    if (performance.now() - begin > limitMs)
      throw new Error(`${wound.title} does not come back: ${host.log()}`);
    await delay(5);
  }
  return performance.now() - begin;
}
