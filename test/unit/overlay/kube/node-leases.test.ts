import test from "ava";
import { NodeLeases, nodeOfKey } from "../../../../overlay/kube/node-leases.ts";
import { Registry } from "../../../../overlay/registry.ts";
import type { StoreEvent } from "../../../../overlay/store.ts";
import { Random } from "../../../sim/random.ts";
import { annotationsOf, brief, config, dual, macOf, type NodeRequest, nodeOf } from "./fixtures.ts";

const leasesOf = (own = "node-1"): NodeLeases => {
  const leases = new NodeLeases({ own });
  leases.configure(config);
  return leases;
};

/** Three Nodes, of which node-1 is this host's. */
const three = (): NodeLeases => {
  const leases = leasesOf();
  leases.replace([nodeOf(1), nodeOf(2), nodeOf(3)]);
  return leases;
};

test("Nodes with flannel's annotations are hosts, and no others are", (t) => {
  const leases = leasesOf();
  const events = leases.replace([
    nodeOf(1),
    nodeOf(2),
    nodeOf(3, { annotations: {} }),
    nodeOf(4, { annotations: { ...annotationsOf(4), "kube-subnet-manager": "yes" } }),
  ]);
  t.deepEqual(brief(events), ["+node-1/10.244.1.0-24", "+node-2/10.244.2.0-24"]);
  t.is(leases.refused.size, 0);
  const registry = new Registry();
  registry.apply({ kind: "changes", revision: leases.revision, events });
  const [lease] = registry.at("192.0.2.2");
  t.is(lease?.subnets.v4, "10.244.2.0/24" as never);
  t.is(nodeOfKey(lease?.key ?? ""), "node-2");
});

test("nothing happens when a Node changes in other ways, as with each heartbeat", (t) => {
  const leases = three();
  const { revision } = leases;
  for (let beat = 0; beat < 3; beat++)
    t.deepEqual(leases.put({ ...nodeOf(2), resourceVersion: `${beat + 2}` }), []);
  t.is(leases.revision, revision);
});

test("a Node that has other annotations, or goes, changes or ends its lease", (t) => {
  const leases = three();
  const moved = { ...annotationsOf(2), "public-ip": "192.0.2.99" };
  t.deepEqual(brief(leases.put(nodeOf(2, { annotations: moved }))), ["+node-2/10.244.2.0-24"]);
  t.deepEqual(brief(leases.put(nodeOf(2, { podCidrs: ["10.244.9.0/24"] }))), [
    "-node-2/10.244.2.0-24",
    "+node-2/10.244.9.0-24",
  ]);
  t.deepEqual(brief(leases.delete("node-2")), ["-node-2/10.244.9.0-24"]);
  t.deepEqual(brief(leases.replace([nodeOf(1)])), ["-node-3/10.244.3.0-24"]);
});

test("both families of a Node are one lease, in the families of the overlay", (t) => {
  const podCidrs = ["fd00:10:244:2::/64", "10.244.2.0/24"];
  const two = leasesOf();
  t.deepEqual(brief(two.put(nodeOf(2, { podCidrs }))), ["+node-2/10.244.2.0-24"]);
  t.deepEqual(brief(two.configure(dual)), [
    "-node-2/10.244.2.0-24",
    "+node-2/10.244.2.0-24&fd00:10:244:2::-64",
  ]);
});

/** What a hostile Node 9 may say, and why it is given nothing. */
const attacks: readonly (readonly [
  what: string,
  request: NodeRequest,
  reason: RegExp | undefined,
])[] = [
  ["all addresses", { podCidrs: ["0.0.0.0/0"] }, /not in 10\.244\.0\.0\/16/],
  ["the whole network", { podCidrs: ["10.244.0.0/16"] }, /more than a quarter/],
  ["half of the network", { podCidrs: ["10.244.0.0/17"] }, /more than a quarter/],
  ["addresses elsewhere", { podCidrs: ["192.168.0.0/24"] }, /not in 10\.244/],
  ["another Node's podCIDR", { podCidrs: ["10.244.2.0/24"] }, /addresses of node node-2/],
  ["a part of another's podCIDR", { podCidrs: ["10.244.2.128/25"] }, /addresses of node node-2/],
  ["several others' podCIDRs", { podCidrs: ["10.244.0.0/20"] }, /addresses of node node-[123]/],
  ["this host's podCIDR", { podCidrs: ["10.244.1.0/24"] }, /addresses of node node-1/],
  ["no podCIDR", { podCidrs: [] }, /no podCIDR/],
  ["three podCIDRs", { podCidrs: ["10.244.9.0/24", "10.244.10.0/24", "fd00::/64"] }, /no podCIDR/],
  ["two of a family", { podCidrs: ["10.244.9.0/24", "10.244.10.0/24"] }, /no podCIDR/],
  ["what is no podCIDR", { podCidrs: ["10.244.9.0/33"] }, /no podCIDR/],
  [
    "another Node's MAC",
    { annotations: { ...annotationsOf(9), "backend-data": JSON.stringify({ VtepMAC: macOf(2) }) } },
    /MAC of node node-2/,
  ],
  [
    "this host's MAC",
    { annotations: { ...annotationsOf(9), "backend-data": JSON.stringify({ VtepMAC: macOf(1) }) } },
    /MAC of node node-1/,
  ],
  [
    "what is no MAC",
    { annotations: { ...annotationsOf(9), "backend-data": '{"VtepMAC":"zz"}' } },
    /cannot be read/,
  ],
  ["what is no JSON", { annotations: { ...annotationsOf(9), "backend-data": "{" } }, /be read/],
  ["a backend of its own", { annotations: { ...annotationsOf(9), "backend-type": "x" } }, /read/],
  ["no address", { annotations: { ...annotationsOf(9), "public-ip": "nowhere" } }, /read/],
  [
    "a very long annotation",
    { annotations: { ...annotationsOf(9), "backend-data": `"${"x".repeat(200_000)}"` } },
    /too long/,
  ],
];

for (const [what, request, reason] of attacks)
  for (const created of [0, 100])
    test(`a Node made ${created === 0 ? "before" : "after"} the others that claims ${what} changes no other's lease`, (t) => {
      const leases = three();
      const events = leases.put(nodeOf(9, { ...request, created }));
      t.deepEqual(brief(events), []);
      t.regex(leases.refused.get("node-9") ?? "", reason ?? /./);
      // Nor if it does so later, nor after this host has listed all Nodes again.
      const later = three();
      later.put(nodeOf(9, { created }));
      t.deepEqual(brief(later.put(nodeOf(9, { ...request, created }))), ["-node-9/10.244.9.0-24"]);
      t.deepEqual(
        later.replace([nodeOf(9, { ...request, created }), nodeOf(3), nodeOf(2), nodeOf(1)]),
        [],
      );
    });

test("a Node that names another's address has its own podCIDR led there, and no more", (t) => {
  const leases = three();
  const stolen = { ...annotationsOf(9), "public-ip": "192.0.2.2" };
  const events = leases.put(nodeOf(9, { annotations: stolen }));
  t.deepEqual(brief(events), ["+node-9/10.244.9.0-24"]);
});

test("of Nodes that come together, the one that was made first has what both claim", (t) => {
  const leases = leasesOf();
  const stolen = nodeOf(9, { podCidrs: ["10.244.2.0/24"] });
  t.deepEqual(brief(leases.replace([stolen, nodeOf(3), nodeOf(2)])), [
    "+node-2/10.244.2.0-24",
    "+node-3/10.244.3.0-24",
  ]);
});

test("after a restart, a host that was known comes before one that claims its MAC", (t) => {
  const leases = new NodeLeases({
    own: "node-1",
    wasKnown: (network, macs) => network === "10.244.2.0/24" && macs.includes(macOf(2) as never),
  });
  leases.configure(config);
  const annotations = {
    ...annotationsOf(9),
    "backend-data": JSON.stringify({ VtepMAC: macOf(2) }),
  };
  leases.replace([nodeOf(9, { annotations, created: 0 }), nodeOf(1), nodeOf(2)]);
  t.deepEqual([...leases.refused.keys()], ["node-9"]);
});

test("this host's own Node comes first, whenever it comes", (t) => {
  const leases = leasesOf();
  leases.replace([nodeOf(9, { podCidrs: ["10.244.1.0/25"], created: 0 }), nodeOf(2)]);
  t.deepEqual(brief(leases.put(nodeOf(1))), ["-node-9/10.244.1.0-25", "+node-1/10.244.1.0-24"]);
  t.regex(leases.refused.get("node-9") ?? "", /addresses of node node-1/);
  t.deepEqual(brief(leases.delete("node-1")), ["-node-1/10.244.1.0-24", "+node-9/10.244.1.0-25"]);
});

test("what is free again goes to a Node that waits for it, the first one first", (t) => {
  const leases = three();
  leases.put(nodeOf(8, { podCidrs: ["10.244.2.0/24"], created: 80 }));
  leases.put(nodeOf(7, { podCidrs: ["10.244.2.0/24"], created: 70 }));
  t.deepEqual(brief(leases.delete("node-2")), ["-node-2/10.244.2.0-24", "+node-7/10.244.2.0-24"]);
  t.regex(leases.refused.get("node-8") ?? "", /node-7/);
});

/** Which of the subnets of one overlay overlap, and which MACs occur twice. */
function shared(registry: Registry): string[] {
  const found = [...registry].flatMap((entry) => (entry.kind === "lease" ? [entry] : []));
  const ranges = found
    .map(({ subnets: { v4 } }) => {
      const [ip = "", length] = (v4 ?? "").split("/");
      const [, , c = 0, d = 0] = ip.split(".").map(Number);
      const first = c * 256 + d;
      return { v4, first, end: first + 2 ** (32 - Number(length)) };
    })
    .toSorted((a, b) => a.first - b.first);
  const overlapping = ranges.filter(({ end }, i) => (ranges[i + 1]?.first ?? Infinity) < end);
  const macs = found.map(({ text }) => /..:..:..:..:..:../.exec(text)?.[0] ?? "");
  const twice = macs.filter((mac, i) => macs.indexOf(mac) !== i);
  return [...overlapping.map(({ v4 }) => `${v4}`), ...twice];
}

test("whatever Nodes say and in whatever order, no two have anything in common", (t) => {
  for (let seed = 0; seed < 30; seed++) {
    const random = new Random(seed);
    const leases = leasesOf();
    const registry = new Registry();
    const apply = (events: StoreEvent[]): void => {
      registry.apply({ kind: "changes", revision: leases.revision, events });
    };
    const some = () => {
      const n = 1 + random.below(6);
      const base = `10.244.${random.below(6)}.${random.pick([0, 128])}`;
      const mac = macOf(random.below(6));
      const annotations = { ...annotationsOf(n), "backend-data": `{"VtepMAC":"${mac}"}` };
      const podCidrs = [`${base}/${random.pick([23, 24, 25])}`];
      return nodeOf(n, { podCidrs, annotations, created: random.below(3) });
    };
    for (let round = 0; round < 60; round++) {
      if (random.chance(0.1)) {
        const all = new Map(Array.from({ length: 5 }, some).map((node) => [node.name, node]));
        apply(leases.replace([...all.values()]));
      } else if (random.chance(0.2)) apply(leases.delete(`node-${1 + random.below(6)}`));
      else apply(leases.put(some()));
      t.deepEqual(shared(registry), [], `seed ${seed}, round ${round}`);
    }
    t.true(registry.size > 0);
  }
});
