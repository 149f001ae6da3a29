import { connectEtcd } from "../../../etcd/client.ts";
import type { Etcd } from "../../../etcd/etcd.ts";
import { run } from "../../../linux/processes/command.ts";
import { type HostsLab, openHosts } from "../../../test/lab/hosts.ts";
import type { OverlayLabHost } from "../../../test/lab/overlay-host.ts";
import { batch } from "../../../test/lab/underlay.ts";

/** Two hosts with podnetd and an etcd, to which this process has a way of its own. */
export interface Site extends AsyncDisposable {
  readonly lab: HostsLab;
  readonly first: OverlayLabHost;
  readonly second: OverlayLabHost;
  readonly store: Etcd;
}

/** No daemon runs yet. */
export async function openSite(overlay: Readonly<Record<string, unknown>>): Promise<Site> {
  await using made = new AsyncDisposableStack();
  const lab = made.use(await openHosts({ kinds: ["podnet", "podnet"], overlay }));
  await batch(lab.underlay.store, [
    `link add bench type veth peer name bench netns ${process.pid}`,
    "link set bench up",
    "addr add 192.168.78.1/24 dev bench",
  ]);
  made.defer(async () => {
    await run(["ip", "link", "delete", "bench"]);
  });
  const way = [
    "link set bench up",
    "addr add 192.168.78.2/24 dev bench",
    ...lab.underlay.storeAddresses.map((address) => `route add ${address} via 192.168.78.1`),
  ];
  await run(["ip", "-batch", "-"], { stdin: `${way.join("\n")}\n` });
  const store = made.use(connectEtcd(lab.etcd.client));
  const [first, second] = lab.hosts as [OverlayLabHost, OverlayLabHost];
  const held = made.move();
  return { lab, first, second, store, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

/** Key and value of the lease of a host that does not exist: nothing answers there. */
export function foreignOf(prefix: string, n: number): readonly [key: string, value: string] {
  const hex = (byte: number): string => byte.toString(16).padStart(2, "0");
  const value = {
    PublicIP: `172.${16 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`,
    BackendType: "vxlan",
    BackendData: { VNI: 1, VtepMAC: `02:00:00:01:${hex(n >> 8)}:${hex(n & 255)}` },
  };
  return [`${prefix}/subnets/${foreignSubnet(n).replace("/", "-")}`, JSON.stringify(value)];
}

/** Beyond what the overlay of the benchmark hands out. */
export const foreignSubnet = (n: number): string => `10.${64 + (n >> 8)}.${n & 255}.0/24`;

/** Leaves room for foreign subnets: hosts have their subnets from 10.127. */
export const roomyOverlay = {
  Network: "10.64.0.0/10",
  SubnetMin: "10.127.0.0",
  SubnetMax: "10.127.255.0",
  Backend: { Type: "vxlan" },
};
