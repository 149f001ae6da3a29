import test from "ava";
import type { PortSpec } from "../../../../api/pod-spec.ts";
import { parsePortText } from "../../../../api/port-text.ts";
import { validatePorts } from "../../../../api/validate/ports.ts";
import { create } from "@bufbuild/protobuf";
import { PublishedPortSchema } from "../../../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { Ip } from "../../../../core/address.ts";
import { type ErrorCode, isPodnetError } from "../../../../core/errors.ts";
import { planPublished, publishedDesired } from "../../../../daemon/published/plan-published.ts";
import { holdSection } from "../../../../daemon/published/published-text.ts";
import type { InterfacePlan } from "../../../../daemon/pods/store/pod-plan.ts";
import type { PublishedPlan } from "../../../../daemon/published/published-plan.ts";
import type { PortsSnapshot } from "../../../../daemon/published/ports-snapshot.ts";

const specs = (...texts: string[]): readonly PortSpec[] =>
  validatePorts(texts.map((text) => create(PublishedPortSchema, parsePortText(text))));

const nic = (name: string, addresses: string[], network: string | null = "default") =>
  ({
    position: 0,
    ...(network === null ? {} : { network }),
    bridge: `${name}-bridge`,
    addresses,
    gateways: [],
    mtu: 1500,
    guestName: name,
  }) as unknown as InterfacePlan;

const four = "10.0.0.2";
const sixth = "fd00::2";
const dual = [nic("eth0", [`${four}/24`, `${sixth}/64`])];
const onlyFour = [nic("eth0", [`${four}/24`])];
const onlySix = [nic("eth0", [`${sixth}/64`])];

const addresses = ["127.0.0.1", "::1", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1"];
const snapshot: PortsSnapshot = {
  taken: [],
  range: { first: 40_000, last: 40_009 },
  start: 3,
  bound: [],
  hostAddresses: Object.fromEntries(addresses.map((ip) => [ip, true])),
  firewall: true,
};

const plan = (
  texts: string[],
  interfaces = dual,
  more: Partial<PortsSnapshot> = {},
): PublishedPlan[] =>
  planPublished(specs(...texts), { interfaces, routes: [] }, { ...snapshot, ...more });

/** Where one port leads, and what of it is translated. */
const leads = (text: string, interfaces = dual, more: Partial<PortsSnapshot> = {}) => {
  const planned = plan([text], interfaces, more);
  return {
    held: planned[0]?.at.map(({ hostIp, podIp }) => `${hostIp} ${podIp}`),
    rules: publishedDesired(planned, interfaces).map(
      ({ hostIp = "every", podIp, bridge, subnet }) => `${hostIp} ${podIp} ${bridge} ${subnet}`,
    ),
  };
};

const rule4 = `every ${four} eth0-bridge 10.0.0.0/24`;
const rule6 = `every ${sixth} eth0-bridge fd00::/64`;

const ways: readonly [string, string, InterfacePlan[], string[], string[]][] = [
  ["loopback of both", "80:80", dual, [`127.0.0.1 ${four}`, `::1 ${sixth}`], []],
  ["loopback, IPv4 alone", "80:80", onlyFour, [`127.0.0.1 ${four}`, `::1 ${four}`], []],
  ["loopback, IPv6 alone", "80:80", onlySix, [`127.0.0.1 ${sixth}`, `::1 ${sixth}`], []],
  ["one loopback address", "[::1]:80:80", onlyFour, [`::1 ${four}`], []],
  ["every address", "*:80:80", dual, [`0.0.0.0 ${four}`, `:: ${sixth}`], [rule4, rule6]],
  ["every address, IPv4 alone", "*:80:80", onlyFour, [`0.0.0.0 ${four}`, `:: ${four}`], [rule4]],
  ["every address, IPv6 alone", "*:80:80", onlySix, [`0.0.0.0 ${sixth}`, `:: ${sixth}`], [rule6]],
  ["every IPv4 address", "0.0.0.0:80:80", dual, [`0.0.0.0 ${four}`], [rule4]],
  ["every IPv6 address", "[::]:80:80/udp", dual, [`:: ${sixth}`], [rule6]],
  [
    "one address",
    "192.0.2.1:80:80",
    dual,
    [`192.0.2.1 ${four}`],
    [`192.0.2.1 ${four} eth0-bridge 10.0.0.0/24`],
  ],
  ["SCTP everywhere", "*:80:80/sctp", onlyFour, [`0.0.0.0 ${four}`], [rule4]],
];

for (const [title, text, interfaces, held, rules] of ways) {
  test(`${title}: ${text} is held and translated where it should be`, (t) => {
    t.deepEqual(leads(text, interfaces), { held, rules });
  });
}

test("on a host without IPv6 loopback is 127.0.0.1 alone, and every address every IPv4 one", (t) => {
  const hostAddresses = { ["127.0.0.1" as Ip]: true, ["0.0.0.0" as Ip]: true };
  t.deepEqual(leads("80:80", dual, { hostAddresses }).held, [`127.0.0.1 ${four}`]);
  t.deepEqual(leads("*:80:80", dual, { hostAddresses }).held, [`0.0.0.0 ${four}`]);
});

test("a pod of several networks is reached by the one its answers leave by, else by the first of podnet's", (t) => {
  const others = nic("eth0", ["172.16.0.2/24"]);
  const theirs = nic("eth1", ["172.17.0.2/24"], null);
  const last = nic("eth2", [`${four}/24`]);
  const interfaces = [theirs, others, last];
  const routes = [{ destination: "0.0.0.0/0" as never, interface: "eth2" }];
  const to = (by: typeof routes) =>
    planPublished(specs("80:80"), { interfaces, routes: by }, snapshot)[0]?.at[0]?.podIp;
  t.is(to(routes), four as Ip);
  t.is(to([]), "172.16.0.2" as Ip);
});

const refusals: readonly [
  string,
  string[],
  InterfacePlan[],
  Partial<PortsSnapshot>,
  ErrorCode,
  string,
][] = [
  ["no such host address", ["192.0.2.9:80:80"], dual, {}, "ADDRESS_INVALID", "ports[0].host_ip"],
  ["no IPv6 address of the pod", ["81:80", "[::]:80:80"], onlyFour, {}, "UNSUPPORTED", "ports[1]"],
  ["no address at all", ["80:80"], [], {}, "UNSUPPORTED", "ports[0]"],
  ["no rules", ["*:80:80"], dual, { firewall: false }, "UNSUPPORTED", "ports[0].host_ip"],
  ["no rules", ["192.0.2.1:80:80"], dual, { firewall: false }, "UNSUPPORTED", "ports[0].host_ip"],
  ["a larger run than the range", ["0:80-90"], dual, {}, "PORTS_EXHAUSTED", "ports[0].host_port"],
];

for (const [title, texts, interfaces, more, code, field] of refusals) {
  test(`refused: ${title} (${texts.join(" ")})`, (t) => {
    const error = t.throws(() => plan(texts, interfaces, more));
    t.true(isPodnetError(error, code), String(error));
    t.is((error as { field?: string }).field, field);
  });
}

test("without rules loopback is published all the same", (t) => {
  t.is(plan(["80:80"], dual, { firewall: false }).length, 1);
});

test("ports are chosen from where the search starts, past pods, programs and the pod's own", (t) => {
  const chosen = (texts: string[], more: Partial<PortsSnapshot> = {}): number[] =>
    plan(texts, dual, more).map(({ hostPort }) => hostPort);
  t.deepEqual(chosen(["1", "2", "3"]), [40_003, 40_004, 40_005]);
  t.deepEqual(chosen(["1-3", "4-6"]), [40_003, 40_006]);
  // The search goes round, and not over the end.
  t.deepEqual(chosen(["1-5"], { start: 8 }), [40_000]);
  t.deepEqual(chosen(["1", "40004:2", "3"]), [40_003, 40_004, 40_005]);
  t.deepEqual(chosen(["1", "40003:2"]), [40_004, 40_003]);
  const at = { protocol: "tcp", hostIp: "127.0.0.1" as Ip, hostPort: 40_003, count: 2 } as const;
  const pod = { kind: "pod" as const, name: "other" };
  t.deepEqual(chosen(["1"], { taken: [{ ...at, ...pod }] }), [40_005]);
  t.deepEqual(chosen(["1"], { bound: [{ ...at, hostIp: "0.0.0.0" as Ip }] }), [40_004]);
  t.deepEqual(chosen(["1/udp"], { taken: [{ ...at, ...pod }] }), [40_003]);
  t.deepEqual(chosen(["192.0.2.1:0:1"], { taken: [{ ...at, ...pod }] }), [40_003]);
});

test("a port of another pod's is refused with its name, where the addresses meet", (t) => {
  const taken = [
    {
      protocol: "tcp" as const,
      hostIp: "192.0.2.1" as Ip,
      hostPort: 8000,
      count: 10,
      kind: "pod" as const,
      name: "other",
    },
  ];
  for (const text of ["192.0.2.1:8009:80", "*:8000:80", "0.0.0.0:7990-8000:1-11"]) {
    const error = t.throws(() => plan([text], dual, { taken }));
    t.true(isPodnetError(error, "PORT_IN_USE") && error.details["holder"] === "other", text);
  }
  for (const text of ["192.0.2.1:8010:80", "8000:80", "[::]:8000:80", "*:8000:80/udp"])
    t.is(plan([text], dual, { taken }).length, 1, text);
});

test("a plan reports every socket and what it serves", (t) => {
  const { lines } = holdSection(plan(["8000-8001:80-81", "*:53:53/udp", "192.0.2.1:9:9/sctp"]));
  t.deepEqual(lines, [
    `hold tcp 127.0.0.1:8000-8001, on loopback forwarded to ${four}:80-81`,
    `hold tcp [::1]:8000-8001, on loopback forwarded to [${sixth}]:80-81`,
    `hold udp 0.0.0.0:53, on loopback forwarded to ${four}:53`,
    `hold udp [::]:53, on loopback forwarded to [${sixth}]:53`,
    `sctp 192.0.2.1:9 to ${four}:9 by rules alone: no socket holds it`,
  ]);
});
