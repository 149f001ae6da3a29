import test from "ava";
import type { BackendSpec, ServiceSpec } from "../../../../api/service-spec.ts";
import { type Cidr, contains, type Ip } from "../../../../core/address.ts";
import { type ErrorCode, isPodnetError } from "../../../../core/errors.ts";
import type { NetworkName, PodName, ServiceName } from "../../../../core/names.ts";
import { serviceCidrs } from "../../../../daemon/config/service-cidrs.ts";
import { chooseAddress } from "../../../../daemon/services/choose-address.ts";
import {
  type Candidate,
  desiredService,
  endpointsOf,
  noticesOf,
} from "../../../../daemon/services/endpoints.ts";
import { planService, type ServiceSurroundings } from "../../../../daemon/services/plan-service.ts";
import { type BackendDesired, slotsOf, stickySlots } from "../../../../network/model/service.ts";
import { definition } from "../../../lab/network-definition.ts";

const networks = [
  definition("green", ["10.20.0.1/24", "fd00:20::1/64"]),
  definition("blue", ["10.21.0.1/24"]),
];
const around: ServiceSurroundings = {
  networks,
  others: [],
  cidrs: ["10.73.0.0/16", "fd73::/64"] as Cidr[],
  overlaps: [],
  holderOf: () => undefined,
};
const spec = (more: Partial<ServiceSpec> = {}): ServiceSpec => ({
  name: "web" as ServiceName,
  network: "green" as NetworkName,
  addresses: [],
  ports: [{ protocol: "tcp", port: 80, target: 8080 }],
  backends: [],
  ...more,
});
const at = (address: string, more: Partial<BackendSpec> = {}): BackendSpec =>
  ({ address: address as Ip, weight: 1, ...more }) as BackendSpec;
const pod = (name: string, more: Partial<BackendSpec> = {}): BackendSpec =>
  ({ pod: name as PodName, weight: 1, ...more }) as BackendSpec;

test("a service gets an address of each family that its network has", (t) => {
  const both = planService(spec(), undefined, around);
  t.deepEqual(
    both.addresses.map((ip) => around.cidrs.findIndex((cidr) => contains(cidr, ip))),
    [0, 1],
  );
  const { addresses } = planService(spec({ network: "blue" as NetworkName }), undefined, around);
  t.is(addresses.length, 1);
  t.deepEqual(planService(spec(), undefined, around).addresses, both.addresses, "by its name");
  const others = [{ ...both, name: "first" as ServiceName }];
  const next = planService(spec(), undefined, { ...around, others });
  t.true(next.addresses.every((ip) => !both.addresses.includes(ip)));
  const elsewhere = { ...around, cidrs: ["10.99.0.0/16"] as Cidr[] };
  t.deepEqual(planService(spec(), both, elsewhere).addresses, both.addresses);
  const same = spec({ addresses: both.addresses });
  t.deepEqual(planService(same, both, elsewhere).addresses, both.addresses, "as the command says");
  // They are addresses of services all the same.
  const [own = ""] = both.addresses;
  for (const others of [[], [{ ...both, name: "first" as ServiceName }]])
    t.throws(
      () =>
        planService(spec({ backends: [at(own)] }), others.length === 0 ? both : undefined, {
          ...elsewhere,
          others,
        }),
      { message: `${own} is an address of services` },
    );
});

test("an address is chosen as long as there is one, and not the subnet's own", (t) => {
  const cidr = "10.73.0.0/28" as Cidr;
  const taken = new Set<Ip>();
  for (let n = 0; n < 14; n++) taken.add(chooseAddress(cidr, "web", taken));
  t.is(taken.size, 14);
  t.false(taken.has("10.73.0.0" as Ip) || taken.has("10.73.0.15" as Ip));
  t.throws(() => chooseAddress(cidr, "web", taken), { code: "POOL_EXHAUSTED" });
});

test("weights take no more slots than a node has", (t) => {
  const backends = Array.from({ length: 1024 }, (_, i) =>
    at(`100.64.${i >> 7}.${(i & 127) + 1}`, { weight: i === 0 ? 99 : 100 }),
  );
  const ports = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ protocol: "tcp" as const, port: i + 1, target: 1 }));
  const large = planService(spec({ backends, ports: ports(2) }), undefined, around);
  const thrown = t.throws(
    () => planService(spec({ backends, ports: ports(3) }), undefined, around),
    { code: "LIMIT_REACHED" },
  );
  t.regex(thrown.message, /take 307197 slots; 262144 of 262144 are left/);
  const others = [{ ...large, name: "large" as ServiceName }];
  t.throws(
    () => planService(spec({ backends, ports: ports(1) }), undefined, { ...around, others }),
    {
      code: "LIMIT_REACHED",
    },
  );
  const even = backends.map((each) => ({ ...each, weight: 100 }));
  t.notThrows(() => planService(spec({ backends: even, ports: ports(32) }), undefined, around));
});

test("each port of a service on this host has a number of its own, and keeps it", (t) => {
  const first = planService(spec(), undefined, around);
  const others = [{ ...first, name: "first" as ServiceName }];
  const ports = [
    { protocol: "tcp", port: 80, target: 80 },
    { protocol: "udp", port: 80, target: 80 },
  ] as const;
  const second = planService(spec({ ports }), undefined, { ...around, others });
  t.deepEqual(
    [...first.ports, ...second.ports].map(({ number }) => number),
    [1, 2, 3],
  );
  const changed = planService(
    spec({ ports: [{ protocol: "sctp", port: 1, target: 1 }, ports[1]] }),
    second,
    { ...around, others },
  );
  t.deepEqual(
    changed.ports.map(({ number }) => number),
    [4, 3],
  );
});

for (const [code, field, asked, more] of [
  ["NETWORK_NOT_FOUND", "network", { network: "red" }, {}],
  ["ADDRESS_OUT_OF_RANGE", "addresses[0]", { addresses: ["10.74.0.1"] }, {}],
  ["ADDRESS_RESERVED", "addresses[0]", { addresses: ["10.73.0.0"] }, {}],
  ["ADDRESS_IN_USE", "addresses[0]", { addresses: ["10.73.0.9"] }, { holderOf: () => 'pod "a"' }],
  ["INVALID_ARGUMENT", "addresses[0]", { network: "blue", addresses: ["fd73::1"] }, {}],
  ["NETWORK_OVERLAP", "addresses", {}, { cidrs: ["10.0.0.0/8"] }],
  ["NETWORK_OVERLAP", "addresses", { addresses: ["10.9.9.9"] }, { cidrs: ["10.0.0.0/8"] }],
  [
    "NETWORK_OVERLAP",
    "addresses",
    {},
    { overlaps: [{ subnet: "10.73.0.0/16", with: 'address 10.73.0.5/16 of "eth0"' }] },
  ],
  ["INVALID_ARGUMENT", "network", {}, { cidrs: [] }],
  ["INVALID_ARGUMENT", "backends[0].address", { backends: [at("10.21.0.9")] }, {}],
  ["INVALID_ARGUMENT", "backends[0].address", { backends: [at("10.73.0.9")] }, {}],
] as const)
  test(`${code} for ${field}: ${JSON.stringify({ ...asked, ...more })}`, (t) => {
    const surroundings = { ...around, ...(more as Partial<ServiceSurroundings>) };
    const thrown = t.throws(() =>
      planService(spec(asked as Partial<ServiceSpec>), undefined, surroundings),
    );
    if (!isPodnetError(thrown)) throw new Error("Another error", { cause: thrown });
    t.is(thrown.code, code satisfies ErrorCode, thrown.message);
    t.is(thrown.field, field);
    t.truthy(thrown.hint);
  });

test("subnets of services are of a usable length and place, one of each family", (t) => {
  t.deepEqual(serviceCidrs(["fd73::/64", "10.73.0.0/16"]), ["10.73.0.0/16", "fd73::/64"]);
  t.deepEqual(serviceCidrs([]), []);
  for (const bad of [["10.73.0.0/30"], ["127.0.0.0/8"], ["10.0.0.0/16", "10.1.0.0/16"], ["x"]])
    t.throws(() => serviceCidrs(bad), { name: "PodnetError" }, bad.join());
});

const candidate = (shown: string, ip: string, more: Partial<Candidate> = {}): Candidate => ({
  kind: "pod",
  shown,
  labels: {},
  addresses: [{ network: "green", ip: ip as Ip }],
  ...more,
});

test("backends are the named and chosen pods of the network, and what is outside", (t) => {
  const select = { app: "web" };
  const service = planService(
    spec({ select, backends: [pod("a", { weight: 5 }), pod("gone"), at("192.0.2.9")] }),
    undefined,
    around,
  );
  const blue = [{ network: "blue", ip: "10.21.0.7" as Ip }];
  const candidates = [
    candidate("a", "10.20.0.2", { labels: select }),
    candidate("b", "10.20.0.3", { labels: { app: "web", more: "1" } }),
    candidate("c", "10.20.0.4", { labels: { app: "db" } }),
    candidate("d", "10.21.0.7", { labels: select, addresses: blue }),
    candidate("ns/e", "fd00:20::5", { kind: "container", labels: select }),
    // A container has the name of a pod, but is none.
    candidate("gone", "10.20.0.6", { kind: "container" }),
  ];
  const found = endpointsOf(service, candidates, networks);
  t.deepEqual(
    found.map(({ pod, container, address, weight }) => [pod ?? container, address, weight]),
    [
      ["a", "10.20.0.2", 5],
      ["b", "10.20.0.3", 1],
      ["ns/e", "fd00:20::5", 1],
      [undefined, "192.0.2.9", 1],
    ],
  );
  t.deepEqual(noticesOf(service, found, networks), []);
  const isolated = [definition("green", ["10.20.0.1/24", "fd00:20::1/64"], { isolated: true })];
  t.deepEqual(
    endpointsOf(service, candidates, isolated).map(({ address }) => address),
    ["192.0.2.9"],
    "pods of an isolated network do not reach each other",
  );
  const grown = [...networks, definition("later", ["192.0.2.1/24"])];
  t.false(
    endpointsOf(service, candidates, grown).some(({ address }) => address === "192.0.2.9"),
    "a network that came later has the address",
  );
  t.is(desiredService(service, found, []), undefined);
});

test("a service without a backend says why", (t) => {
  const says = (more: Partial<ServiceSpec>, endpoints = 0, all = networks): string => {
    const service = planService(spec(more), undefined, around);
    const drained = Array.from({ length: endpoints }, () => ({
      address: "192.0.2.9" as Ip,
      weight: 0,
    }));
    return noticesOf(service, drained, all).join();
  };
  t.regex(says({}), /names no backends/);
  t.regex(says({ backends: [pod("a")] }), /No backend of "web" runs on network "green"/);
  t.regex(says({ backends: [at("192.0.2.9", { weight: 0 })] }, 1), /have weight 0/);
  t.regex(says({ select: { a: "b" } }, 0, []), /no network "green" any more/);
  const isolated = [definition("green", ["10.20.0.1/24"], { isolated: true })];
  t.regex(says({ backends: [pod("a")] }, 0, isolated), /isolated network "green"/);
});

test("weights become slots, divided by what they have in common", (t) => {
  const backend = (address: string, weight: number) => ({
    address: address as Ip,
    port: 1,
    weight,
  });
  const slots = (...weights: number[]): string =>
    slotsOf(
      [...weights.map((weight, i) => backend(`10.0.0.${i}`, weight)), backend("fd00::1", 7)],
      4,
    )
      .map(({ address }) => address.at(-1))
      .join("");
  t.is(slots(100, 50), "001");
  t.is(slots(3, 2), "00011");
  t.is(slots(7, 0), "0");
  t.is(slots(0), "");
});

const desired = (n: number, weight = 1): BackendDesired => ({
  address: `100.64.${n >> 7}.${(n & 127) + 1}` as Ip,
  port: 80,
  weight,
});

/** How many slots each of these backends has. */
const counts = (slots: readonly BackendDesired[], backends: readonly BackendDesired[]): number[] =>
  backends.map((each) => slots.filter(({ address }) => address === each.address).length);

test("slots of clients that stay are even, and few clients move with a change", (t) => {
  for (const count of [1, 2, 3, 10, 64]) {
    const backends = Array.from({ length: count }, (_, n) => desired(n));
    const slots = stickySlots(backends, 4);
    t.is(slots.length, 1024);
    const each = counts(slots, backends);
    t.true(Math.max(...each) - Math.min(...each) <= 1, `${count}: ${each.join()}`);
    t.deepEqual(stickySlots(backends, 4), slots, "the same again");
    if (count < 2) continue;
    // Without the last one: its own slots move, and one in ten of the others at most.
    const without = stickySlots(backends.slice(0, -1), 4);
    const moved = slots.filter(
      ({ address }, i) => address !== desired(count - 1).address && without[i]?.address !== address,
    );
    t.true(moved.length < 1024 / 10, `${count}: ${moved.length} moved`);
  }
  const weighted = [desired(0, 3), desired(1, 1), desired(2, 0)];
  t.deepEqual(counts(stickySlots(weighted, 4), weighted), [768, 256, 0]);
  t.deepEqual(stickySlots([desired(0, 0)], 4), []);
  t.deepEqual(stickySlots([desired(0)], 6), []);
  const most = Array.from({ length: 1024 }, (_, n) => desired(n, n === 0 ? 99 : 100));
  const large = stickySlots(most, 4);
  t.is(large.length, 65_536);
  t.is(new Set(large.map(({ address }) => address)).size, 1024, "each has some");
});
