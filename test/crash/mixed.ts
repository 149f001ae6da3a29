import type { MessageInitShape } from "@bufbuild/protobuf";
import type { InterfaceSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { Machine } from "../lab/lab.ts";
import type { Acts } from "./acts.ts";
import { create, subject } from "./pods.ts";

/**
 * Changes of a pod that has more than NICs on podnet's networks: a foreign bridge, a foreign
 * tap, addresses on lo.
 */
export type MixedChange =
  | "mixed-create"
  | "mixed-delete"
  | "bridge-add"
  | "bridge-remove"
  | "kept-add"
  | "kept-remove"
  | "lo-add"
  | "lo-remove";

const others = { bridge: "br-far", tap: "far-tap" } as const;

/** Makes foreign links on a host that pods may use. */
export async function makeOthers(host: Machine): Promise<void> {
  const ip = (command: string): Promise<string> => host.run("ip", ...command.split(" "));
  await ip(`link add ${others.bridge} type bridge`);
  // Its own port, for a bridge without loses its MAC with the last one.
  await ip("link add far-port address 02:00:00:00:00:fa type veth peer name far-peer");
  await ip(`link set far-port master ${others.bridge} up`);
  await ip(`link set ${others.bridge} up`);
  await ip(`addr add 10.88.0.1/24 dev ${others.bridge}`);
  await ip(`tuntap add dev ${others.tap} mode tap`);
  await ip(`link set ${others.tap} up alias hers`);
}

type Asked = MessageInitShape<typeof InterfaceSchema>;
type Kind = "bridge" | "kept" | "lo";

const each: Readonly<Record<Kind, Asked>> = {
  bridge: { bridge: others.bridge, address: "10.88.0.5/24" },
  kept: { tap: others.tap, tapKept: true, address: "10.89.0.5/24" },
  lo: { loopback: true, addresses: ["10.7.0.1/32", "fd07::1/128"] },
};

const pod = { idOrName: subject };
const all = { name: subject, interfaces: [{}, each.bridge, each.kept, each.lo] };

const adding = (kind: Kind): Acts => ({
  stays: "pod",
  from: "commit:replan:before",
  prepare: (worker) => create(worker, subject),
  change: ({ client }) => client.pods.addInterface({ ...pod, interface: each[kind] }),
});

const removing = (kind: Kind): Acts => ({
  stays: "pod",
  from: "commit:replan:before",
  prepare: ({ client }) =>
    client.pods.create({ spec: { name: subject, interfaces: [{}, each[kind]] } }),
  change: ({ client }) =>
    client.pods.removeInterface({ ...pod, guestName: kind === "lo" ? "lo" : "eth1" }),
});

export const mixedChanges: Readonly<Record<MixedChange, Acts>> = {
  "mixed-create": {
    stays: undefined,
    from: "commit:claim:before",
    prepare: async () => {},
    change: ({ client }) => client.pods.create({ spec: all }),
  },
  "mixed-delete": {
    stays: undefined,
    from: "commit:deleting:before",
    prepare: ({ client }) => client.pods.create({ spec: all }),
    change: ({ client }) => client.pods.delete(pod),
  },
  "bridge-add": adding("bridge"),
  "bridge-remove": removing("bridge"),
  "kept-add": adding("kept"),
  "kept-remove": removing("kept"),
  "lo-add": adding("lo"),
  "lo-remove": removing("lo"),
};

const four = ["4 interfaces, 0 ports"];
const oneOrTwo = ["1 interfaces, 0 ports", "2 interfaces, 0 ports"];

/** What the subject may be afterwards. */
export const mixedWhole: Readonly<Record<MixedChange, readonly string[]>> = {
  "mixed-create": four,
  "mixed-delete": four,
  "bridge-add": oneOrTwo,
  "bridge-remove": oneOrTwo,
  "kept-add": oneOrTwo,
  "kept-remove": oneOrTwo,
  "lo-add": oneOrTwo,
  "lo-remove": oneOrTwo,
};
