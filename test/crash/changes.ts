import type { Lane } from "./lane.ts";
import { create, subject } from "./pods.ts";

/** What is changed of a node or of a pod that runs. */
export type Change =
  | "network-create"
  | "network-delete"
  | "interface-add"
  | "interface-remove"
  | "publish"
  | "unpublish"
  | "pause"
  | "resume"
  | "stop";

/** The network that is made and unmade. */
export const extra = "extra";

interface Acts {
  /** The first crossing of the change, as failpoints count from it. */
  readonly from: string;
  /** Of a pod, which is never lost. */
  readonly ofPod: boolean;
  /** Makes what is to be changed. */
  prepare(lane: Lane): Promise<unknown>;
  change(lane: Lane): Promise<unknown>;
}

const pod = { idOrName: subject };
const ports = [
  { hostIp: "0.0.0.0", hostPort: 18080, podPort: 80 },
  { hostIp: "127.0.0.1", hostPort: 18081, podPort: 81 },
];
const network = { name: extra, subnets: [{ cidr: "10.77.0.0/24" }, { cidr: "fd77::/64" }] };

const make = (lane: Lane): Promise<unknown> => create(lane, subject);
const makeNetwork = ({ client }: Lane): Promise<unknown> =>
  client.networks.create({ spec: network });

/** What the subject may consist of afterwards. */
export const parts: Readonly<Record<Change, readonly string[]>> = {
  "network-create": [],
  "network-delete": [],
  "interface-add": ["1 interfaces, 0 ports", "2 interfaces, 0 ports"],
  "interface-remove": ["1 interfaces, 0 ports", "2 interfaces, 0 ports"],
  publish: ["1 interfaces, 0 ports", "1 interfaces, 2 ports"],
  unpublish: ["1 interfaces, 0 ports", "1 interfaces, 2 ports"],
  pause: ["1 interfaces, 0 ports"],
  resume: ["1 interfaces, 0 ports"],
  stop: ["1 interfaces, 0 ports"],
};

/** By the order in which they can follow each other on one pod. */
export const changes: Readonly<Record<Change, Acts>> = {
  "network-create": {
    ofPod: false,
    // (Each start writes the row of the configured one.)
    from: "netlink:list routes:after",
    prepare: async () => {},
    change: makeNetwork,
  },
  "network-delete": {
    ofPod: false,
    from: "commit:update networks:after",
    prepare: makeNetwork,
    change: ({ client }) => client.networks.delete({ name: extra }),
  },
  "interface-add": {
    ofPod: true,
    from: "commit:replan:before",
    prepare: make,
    change: ({ client }) => client.pods.addInterface({ ...pod, interface: { guestName: "eth1" } }),
  },
  "interface-remove": {
    ofPod: true,
    from: "commit:replan:before",
    prepare: ({ client }) => client.pods.create({ spec: { name: subject, interfaces: [{}, {}] } }),
    change: ({ client }) => client.pods.removeInterface({ ...pod, guestName: "eth1" }),
  },
  publish: {
    ofPod: true,
    from: "socket:hold a TCP port:before",
    prepare: make,
    change: ({ client }) => client.pods.publishPorts({ ...pod, ports }),
  },
  unpublish: {
    ofPod: true,
    from: "commit:replan:before",
    prepare: ({ client }) => client.pods.create({ spec: { name: subject, ports } }),
    change: ({ client }) => client.pods.unpublishPorts({ ...pod, ports }),
  },
  pause: {
    ofPod: true,
    from: "qmp:stop:before",
    prepare: make,
    change: ({ client }) => client.pods.pause(pod),
  },
  resume: {
    ofPod: true,
    from: "commit:paused:after",
    prepare: async (lane) => {
      await make(lane);
      await lane.client.pods.pause(pod);
    },
    change: ({ client }) => client.pods.resume(pod),
  },
  stop: {
    ofPod: true,
    from: "commit:stopping:before",
    prepare: make,
    change: ({ client }) => client.pods.stop(pod),
  },
};

export const isChange = (operation: string): operation is Change => operation in changes;

export const allChanges = Object.keys(changes) as readonly Change[];
