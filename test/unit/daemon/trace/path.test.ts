import test from "ava";
import { type Ip, ipOf, parseCidr } from "../../../../core/address.ts";
import type { Protocol } from "../../../../policy/model.ts";
import { definition } from "../../../lab/network-definition.ts";
import type { NetworkDefinition } from "../../../../daemon/config/network-definition.ts";
import type { InterfacePlan, PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import type { Peer, TraceFacts } from "../../../../daemon/trace/facts.ts";
import { guestRoute } from "../../../../daemon/trace/guest-route.ts";
import { podSender } from "../../../../daemon/trace/sender.ts";
import { tracePath } from "../../../../daemon/trace/path.ts";

const here = definition("here", ["10.1.0.1/24", "fd01::1/64"]);
const there = definition("there", ["10.2.0.1/24"]);

const interfaceOf = (
  position: number,
  network: NetworkDefinition | undefined,
  addresses: readonly string[],
  more: Partial<InterfacePlan> = {},
): InterfacePlan => ({
  position,
  ...(network === undefined ? {} : { network: network.name }),
  addresses: addresses as never,
  gateways: network?.subnets.map(({ gateway }) => ({ gateway: ipOf(gateway) })) ?? [],
  mtu: 1500,
  guestName: `eth${position}` as never,
  nic: { tap: `tap${position}` } as never,
  ...more,
});

const planOf = (...interfaces: InterfacePlan[]): PodPlan =>
  ({ podId: "p", name: "web", interfaces, routes: [] }) as unknown as PodPlan;

const plan = planOf(interfaceOf(0, here, ["10.1.0.2/24", "fd01::2/64"]));

const facts = (more: Partial<TraceFacts> = {}): TraceFacts => ({
  networks: [here, there],
  firewall: true,
  guardLacking: [],
  hostRoute: { local: false, link: "eth9", gateway: "192.0.2.1" as Ip },
  bridgedPass: true,
  peerAt: () => undefined,
  publishedAt: () => undefined,
  decide: () => undefined,
  serviceAt: () => undefined,
  elsewhere: () => undefined,
  ...more,
});

/** Each step that has a rule or does not pass, and the verdict. */
function said(of: PodPlan, to: string, known: Partial<TraceFacts> = {}, port?: number): string[] {
  const service = port === undefined ? { protocol: "icmp" } : { protocol: "tcp", port };
  const asked = { sender: podSender(of), ip: to as Ip, ...(service as { protocol: Protocol }) };
  const { steps, verdict } = tracePath(asked, facts(known));
  return [
    ...steps.flatMap(({ step, verdict: each, rule }) =>
      rule === "" && each === "pass" ? [] : [`${step} ${each} ${rule}`.trimEnd()],
    ),
    verdict,
  ];
}

const peer: Peer = { text: "pod db", owner: { kind: "pod", key: "db" }, isolated: false };
const denies = {
  decide: (_owner: unknown, direction: "egress" | "ingress") =>
    ({
      verdict: direction === "egress" ? "allow" : "deny",
      policy: "p",
      rule: direction,
      reason: "",
      by: "any",
    }) as const,
};

test("an address of an overlay leads to its host, and what is decided there is not known", (t) => {
  const remote = {
    overlay: "o",
    backend: "vxlan",
    publicIp: "192.0.2.9",
    silent: true,
    pod: "far",
  };
  t.deepEqual(said(plan, "10.9.0.2", { elsewhere: () => remote }), ["end unknown", "unknown"]);
  t.deepEqual(said(plan, "10.9.0.2"), ["nat pass masquerade", "allow"], "else by the uplink");
});

test("an IPv6 packet goes as an IPv4 one does", (t) => {
  t.deepEqual(said(plan, "2001:db8::1"), ["nat pass masquerade", "allow"]);
  t.deepEqual(said(plan, "fd00:ec2::254"), ["host deny cloud-metadata", "deny"]);
  t.deepEqual(said(plan, "fd01::3", { peerAt: () => peer, ...denies }), [
    "policy pass p/egress",
    "policy deny p/ingress",
    "deny",
  ]);
});

test("where frames on bridges pass no rules, policies do not decide between pods", (t) => {
  const known = { peerAt: () => peer, ...denies };
  t.deepEqual(said(plan, "10.1.0.3", { ...known, bridgedPass: false }), ["allow"]);
  t.deepEqual(said(plan, "10.1.0.3", { ...known, firewall: false }), ["allow"]);
});

test("a network that admits the sender takes its packets; another one does not", (t) => {
  const known = { peerAt: () => peer };
  t.deepEqual(said(plan, "10.2.0.3", known), ["network deny networks", "deny"]);
  const open = { ...there, admit: [parseCidr("10.1.0.0/16")] };
  t.deepEqual(said(plan, "10.2.0.3", { ...known, networks: [here, open] }), [
    "network pass admit",
    "allow",
  ]);
});

test("the host is open to what it serves, and to what the network opens", (t) => {
  const local = { hostRoute: { local: true, link: "lo" } };
  t.deepEqual(said(plan, "10.1.0.1", local, 53), ["host pass names", "allow"]);
  t.deepEqual(said(plan, "192.0.2.1", local, 53), ["host deny host", "deny"], "not its gateway");
  t.deepEqual(said(plan, "10.1.0.1", local), ["host pass ping", "allow"]);
  const [first, last] = [9000, 9009];
  const open = { ...here, hostAccess: [{ protocol: "tcp", first, last } as const] };
  const known = { ...local, networks: [open] };
  t.deepEqual(said(plan, "10.1.0.1", known, 9009), ["host pass host_access", "allow"]);
  t.deepEqual(said(plan, "10.1.0.1", known, 9010), ["host deny host", "deny"]);
});

test("what is not podnet's to decide is unknown; its own address stays in the guest", (t) => {
  t.deepEqual(said(plan, "10.1.0.2"), ["allow"]);
  const foreign = planOf(interfaceOf(0, undefined, ["10.5.0.2/24"]));
  t.deepEqual(said(foreign, "10.5.0.3"), ["network unknown", "unknown"]);
  t.deepEqual(said(foreign, "10.6.0.3"), ["route deny no route", "deny"]);
  const routed = {
    ...plan,
    routes: [
      { destination: parseCidr("10.6.0.0/16"), gateway: "10.1.0.9" as Ip, interface: "eth0" },
    ],
  };
  t.deepEqual(said(routed, "10.6.0.3", { peerAt: () => peer }), ["end unknown", "unknown"]);
});

test("a guest takes the longest prefix, then the lowest metric", (t) => {
  const gateways = (gateway: string, metric: number) => ({
    gateways: [{ gateway: gateway as Ip, metric }],
  });
  const two = planOf(
    interfaceOf(0, here, ["10.1.0.2/24"], gateways("10.1.0.1", 200)),
    interfaceOf(1, there, ["10.2.0.2/24"], gateways("10.2.0.1", 100)),
  );
  const by = (to: string, of: PodPlan = two): string | undefined =>
    guestRoute(podSender(of), to as Ip)?.from.guestName;
  t.is(by("203.0.113.1"), "eth1");
  t.is(by("10.1.0.77"), "eth0");
  t.is(by("203.0.113.1", planOf(...two.interfaces.slice(0, 1))), "eth0");
  const destination = parseCidr("203.0.113.0/24");
  const source = "10.1.0.2" as Ip;
  const routes = [{ destination, gateway: "10.1.0.1" as Ip, interface: "eth0", source }];
  t.is(by("203.0.113.1", { ...two, routes }), "eth0");
});

const served = (...backends: readonly (readonly [string, number])[]): Partial<TraceFacts> => ({
  serviceAt: (network, ip) =>
    network === here.name && ip === "10.73.0.9"
      ? {
          name: "shop",
          sticky: false,
          notices: backends.length === 0 ? ["No backend runs"] : [],
          ports: [
            {
              protocol: "tcp",
              port: 80,
              backends: backends.map(([ip, weight]) => ({
                text: `pod at ${ip}`,
                ip: ip as Ip,
                port: 8080,
                weight,
              })),
            },
          ],
        }
      : undefined,
  peerAt: () => peer,
});
const texts = (known: Partial<TraceFacts>, port = 80): string[] => {
  const asked = { sender: podSender(plan), ip: "10.73.0.9" as Ip, protocol: "tcp" as const, port };
  const { steps, verdict } = tracePath(asked, facts(known));
  return [
    ...steps
      .filter(({ step }) => step === "service" || step === "backend")
      .map((each) => `${each.verdict} ${each.text}`),
    verdict,
  ];
};

test("to a service: which backends it chooses among, and what decides about each", (t) => {
  t.deepEqual(texts(served(["10.1.0.7", 1])), [
    "pass service shop leads 80/tcp to its one backend",
    "pass pod at 10.1.0.7, 10.1.0.7 port 8080",
    "allow",
  ]);
  t.deepEqual(said(plan, "10.73.0.9", { ...served(["10.1.0.7", 1]), ...denies }, 80), [
    "service pass shop",
    "policy pass p/egress",
    "policy deny p/ingress",
    "deny",
  ]);
  const two = served(["10.1.0.7", 3], ["192.0.2.7", 1]);
  t.deepEqual(texts(two), [
    "pass service shop leads 80/tcp to one of 2 backends, by chance",
    "pass pod at 10.1.0.7, 10.1.0.7 port 8080, 75 %: has reached pod db",
    "pass pod at 192.0.2.7, 192.0.2.7 port 8080, 25 %: has left this host",
    "allow",
  ]);
  // A policy of one backend's: the next connection may meet the other.
  const some = texts({ ...two, ...denies });
  t.regex(some[1] ?? "", /^unknown .*denied:.*\(p\/ingress\)/);
  t.is(some.at(-1), "unknown");
  const both = texts({ ...served(["10.1.0.7", 1], ["10.1.0.8", 1]), ...denies });
  t.deepEqual(both.slice(-2), ["deny every backend of shop is denied", "deny"]);
});

test("to a service that does not serve this, or has no backend: refused, and why", (t) => {
  t.deepEqual(texts(served(["10.1.0.7", 1]), 81), [
    "deny service shop does not have 81/tcp, and refuses it: it has 80/tcp",
    "deny",
  ]);
  t.deepEqual(texts(served()), ["deny No backend runs", "deny"]);
});
