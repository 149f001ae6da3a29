import type { Network } from "../../api/gen/podnet/v1/network_service_pb.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Acts } from "./acts.ts";
import { type DiskChange, diskChanges, disksText, disksWhole } from "./disks.ts";
import { type AgentlessChange, agentlessChanges } from "./agentless.ts";
import { type AttachedChange, attachedChanges } from "./attached.ts";
import type { Worker } from "./worker.ts";
import { type MixedChange, mixedChanges, mixedWhole } from "./mixed.ts";
import { create, subject } from "./pods.ts";
import { type ShareChange, shareChanges } from "./shares.ts";
import { type AuditChange, auditChanges } from "./audit.ts";
import { type PolicedChange, policedChanges } from "./policed.ts";
import { type ServiceChange, serviceChanges } from "./services.ts";

/** What is changed of a node or of a pod that runs. */
export type Change =
  | "network-create"
  | "network-update"
  | "network-delete"
  | "interface-add"
  | "interface-set"
  | "interface-remove"
  | "publish"
  | "unpublish"
  | "pause"
  | "resume"
  | "stop"
  | "grow"
  | "trace-live"
  | MixedChange
  | DiskChange
  | PolicedChange
  | ServiceChange
  | AuditChange
  | AgentlessChange
  | AttachedChange
  | ShareChange;

/** The network that is made, changed and unmade. */
export const extra = "extra";

const pod = { idOrName: subject };
const ports = [
  { hostIp: "0.0.0.0", hostPort: 18080, podPort: 80 },
  { hostIp: "127.0.0.1", hostPort: 18081, podPort: 81 },
];
const network = { name: extra, subnets: [{ cidr: "10.77.0.0/24" }, { cidr: "fd77::/64" }] };
const otherNetwork = {
  name: extra,
  mtu: 1400,
  isolated: true,
  masquerade: false,
  subnets: [{ cidr: "10.78.0.0/24" }, { cidr: "fd77::/64" }],
};
const addressed = (host: number): { readonly addresses: string[] } => ({
  addresses: [`192.168.123.${host}`],
});

const make = (worker: Worker): Promise<unknown> => create(worker, subject);
const makeNetwork = ({ client }: Worker): Promise<unknown> =>
  client.networks.create({ spec: network });

/** By the order in which they can follow each other on one pod. */
export const changes: Readonly<Record<Change, Acts>> = {
  "network-create": {
    stays: undefined,
    // (Each start writes the row of the configured one.)
    from: "netlink:list routes:after",
    prepare: async () => {},
    change: makeNetwork,
  },
  "network-update": {
    stays: "network",
    from: "commit:update networks:after",
    prepare: makeNetwork,
    change: ({ client }) => client.networks.update({ spec: otherNetwork }),
  },
  "network-delete": {
    stays: undefined,
    from: "commit:update networks:after",
    prepare: makeNetwork,
    change: ({ client }) => client.networks.delete({ name: extra }),
  },
  "interface-add": {
    stays: "pod",
    from: "commit:replan:before",
    prepare: make,
    change: ({ client }) => client.pods.addInterface({ ...pod, interface: { guestName: "eth1" } }),
  },
  "interface-set": {
    stays: "pod",
    from: "commit:replan:before",
    prepare: ({ client }) =>
      client.pods.create({ spec: { name: subject, interfaces: [{}, addressed(50)] } }),
    change: ({ client }) =>
      client.pods.updateInterface({
        ...pod,
        guestName: "eth1",
        mtu: 1400,
        addresses: addressed(60),
      }),
  },
  "interface-remove": {
    stays: "pod",
    from: "commit:replan:before",
    prepare: ({ client }) => client.pods.create({ spec: { name: subject, interfaces: [{}, {}] } }),
    change: ({ client }) => client.pods.removeInterface({ ...pod, guestName: "eth1" }),
  },
  publish: {
    stays: "pod",
    from: "socket:hold a TCP port:before",
    prepare: make,
    change: ({ client }) => client.pods.publishPorts({ ...pod, ports }),
  },
  unpublish: {
    stays: "pod",
    from: "commit:replan:before",
    prepare: ({ client }) => client.pods.create({ spec: { name: subject, ports } }),
    change: ({ client }) => client.pods.unpublishPorts({ ...pod, ports }),
  },
  pause: {
    stays: "pod",
    from: "qmp:stop:before",
    prepare: make,
    change: ({ client }) => client.pods.pause(pod),
  },
  resume: {
    stays: "pod",
    from: "commit:paused:after",
    prepare: async (worker) => {
      await make(worker);
      await worker.client.pods.pause(pod);
    },
    change: ({ client }) => client.pods.resume(pod),
  },
  stop: {
    stays: "pod",
    from: "commit:stopping:before",
    prepare: make,
    change: ({ client }) => client.pods.stop(pod),
  },
  grow: {
    stays: "pod",
    from: "commit:replan:before",
    prepare: ({ client }) =>
      client.pods.create({
        spec: { name: subject, resources: { maxVcpu: 2, maxMemoryMib: 256 } },
      }),
    change: ({ client }) => client.pods.update({ ...pod, resources: { vcpu: 2, memoryMib: 256 } }),
  },
  // Its rules go with podnetd, however that ends. (The second one is recorded from its beginning.)
  "trace-live": {
    stays: "pod",
    from: "netlink:nftables trace a flow:before",
    prepare: make,
    change: async ({ client }) => {
      const asked = { ...pod, destination: "192.0.2.7", port: 80, bounds: { timeoutMs: 1000 } };
      for (let i = 0; i < 2; i++) for await (const _event of client.pods.traceLive(asked));
    },
  },
  ...mixedChanges,
  ...diskChanges,
  ...policedChanges,
  ...serviceChanges,
  ...auditChanges,
  ...agentlessChanges,
  ...attachedChanges,
  ...shareChanges,
};

export const isChange = (operation: string): operation is Change => operation in changes;

export const allChanges = Object.keys(changes) as readonly Change[];

/** Changes of pods with foreign bridges and taps, and with addresses on lo. */
export const ofMixed = Object.keys(mixedChanges) as readonly MixedChange[];

/** Changes that machines which stand in can be used for. */
export const withStandIns = allChanges.filter((change) => !(change in shareChanges));

/** Changes of networks, and of pods without foreign links. */
export const ofPlain = withStandIns.filter((change) => !(change in mixedChanges));

/** Changes whose rules each firewall driver has to carry out. */
export const firewallChanges = [
  "network-create",
  "network-delete",
  "publish",
  "unpublish",
] as const satisfies readonly Change[];

const plainPod = "1 interfaces, 0 ports";
const two = [plainPod, "2 interfaces, 0 ports"];
const published = [plainPod, "1 interfaces, 2 ports"];
const plainNetwork = "mtu 1500, 10.77.0.0/24 fd77::/64, apart false, hidden true";

/** What the subject, or the network, may be afterwards: as before, or as asked. */
export const whole: Readonly<Record<Change, readonly string[]>> = {
  "network-create": [plainNetwork],
  "network-update": [plainNetwork, "mtu 1400, 10.78.0.0/24 fd77::/64, apart true, hidden false"],
  "network-delete": [plainNetwork],
  "interface-add": two,
  "interface-set": ["192.168.123.50/24 mtu 1500", "192.168.123.60/24 mtu 1400"],
  "interface-remove": two,
  publish: published,
  unpublish: published,
  pause: [plainPod],
  resume: [plainPod],
  stop: [plainPod],
  // Memory that is plugged in stays, whatever becomes of the processors.
  grow: ["1 vCPU, 128 MiB", "1 vCPU, 256 MiB", "2 vCPU, 256 MiB"],
  "trace-live": [plainPod],
  ...mixedWhole,
  "disk-create": [plainPod],
  "disk-start": [plainPod],
  "disk-delete": [plainPod],
  ...disksWhole,
  "names-apply": [plainPod],
  "names-delete": [plainPod],
  "rules-apply": [plainPod],
  "service-create": [plainPod],
  "service-update": [plainPod],
  "service-backends": [plainPod],
  "service-delete": [plainPod],
  "policy-log": [plainPod],
  learn: [plainPod],
  "agentless-create": [plainPod],
  "agentless-add": two,
  "agentless-stop": [plainPod],
  "share-create": [plainPod],
  "share-start": [plainPod],
  "share-delete": [plainPod],
  attach: [plainPod],
  detach: [plainPod],
};

export function podText(change: Change, pod: Pod): string {
  const { interfaces, ports } = pod;
  if (change in disksWhole) return disksText(pod);
  if (change === "grow") return `${pod.vm?.vcpu} vCPU, ${pod.vm?.memoryMib} MiB`;
  if (change !== "interface-set") return `${interfaces.length} interfaces, ${ports.length} ports`;
  const [, changed] = interfaces;
  return `${changed?.addresses.join(" ")} mtu ${changed?.mtu}`;
}

export const networkText = ({ mtu, subnets, isolated, masquerade }: Network): string =>
  `mtu ${mtu}, ${subnets.map(({ cidr }) => cidr).join(" ")}, apart ${isolated}, hidden ${masquerade}`;
