import test from "ava";
import type { CniPort } from "../../../../cni/protocol/capabilities.ts";
import type { Cidr, Ip } from "../../../../core/address.ts";
import type { IfName } from "../../../../core/names.ts";
import { attachmentMark } from "../../../../network/model/ownership.ts";
import {
  type Case,
  dual,
  given,
  hostPorts,
  id,
  ips,
  network,
  planned,
  plannedWhole,
  port,
  ports,
  six,
} from "./fixtures/planned.ts";

const macvlan = (serviceCidr?: string) => ({
  fragment: {
    macvlan: {
      link: "macvlan0",
      gateway: "10.77.0.1",
      ...(serviceCidr === undefined ? {} : { serviceCidr }),
    },
  },
});
const service = (text: string | undefined) => ({
  settings: { mtu: undefined, serviceCidr: text as Cidr | undefined },
});
const at = (hostIp: string, podIp: string) => ({ hostIp, podIp });
const rate = (bitsPerSecond: number, burstBits: number) => ({ bitsPerSecond, burstBits });

const heldByRuntime = { ...ports(port()), portsHeldByRuntime: true };
/** A host on which a program has the first port that could be chosen, at every address of IPv4. */
const withLoopback6: typeof hostPorts = {
  ...hostPorts,
  bound: [{ protocol: "tcp", hostIp: "0.0.0.0" as Ip, hostPort: 32_768 }],
  hostAddresses: { ...hostPorts.hostAddresses, "::1": true, "127.0.0.5": true } as never,
};

const cases: Readonly<Record<string, readonly [asks: Case, gets: object]>> = {
  "nothing asked for": [
    {},
    {
      version: 2,
      id,
      containerId: "one",
      ifName: "eth0",
      network: "blue",
      netns: "/run/netns/one",
      mac: "0a:58:0a:4d:00:02",
      mtu: 1450,
      mtuOfNetwork: true,
      addresses: ["10.77.0.2/24"],
      gateways: ["10.77.0.1"],
      dns: { nameservers: ["9.9.9.9"], search: ["example.org"], options: [] },
      fragment: {
        hostLink: `pc${id}`,
        guestLink: "eth0",
        bridge: "pn-blue",
        mac: "0a:58:0a:4d:00:02",
        mtu: 1450,
        addresses: ["10.77.0.2/24"],
        routes: [{ destination: "0.0.0.0/0", gateway: "10.77.0.1" }],
        alias: attachmentMark(id),
        isolated: false,
      },
    },
  ],
  "both families: IPv4 makes the MAC, each has a default route": [
    { snapshot: dual },
    {
      mac: "0a:58:0a:4d:00:02",
      addresses: ["10.77.0.2/24", "fd77::c0a8:5/64"],
      gateways: ["10.77.0.1", "fd77::1"],
      fragment: {
        routes: [
          { destination: "0.0.0.0/0", gateway: "10.77.0.1" },
          { destination: "::/0", gateway: "fd77::1" },
        ],
      },
    },
  ],
  "IPv6 alone: its last four bytes make the MAC": [
    { snapshot: { subnets: [six] } },
    { mac: "0a:58:c0:a8:00:05", fragment: { routes: [{ destination: "::/0" }] } },
  ],
  "a MAC that is in use already": [{ snapshot: { drawnMac: given } }, { mac: given }],
  "a MAC": [{ asked: { capabilities: { mac: given } } }, { mac: given, fragment: { mac: given } }],
  "a MAC by args, by CNI_ARGS": [{ args: { MAC: given } }, { mac: given }],
  "an address of one family: the other is chosen": [
    { asked: ips("fd77::9/64"), snapshot: dual },
    { addresses: ["10.77.0.2/24", "fd77::9/64"] },
  ],
  "an address by CNI_ARGS, of which a capability is stronger": [
    { asked: ips("10.77.0.9"), args: { IP: "10.77.0.8" } },
    { addresses: ["10.77.0.9/24"], mac: "0a:58:0a:4d:00:09" },
  ],
  "an MTU: it does not follow the network's": [
    { asked: { mtu: 1400 } },
    { mtu: 1400, mtuOfNetwork: undefined, fragment: { mtu: 1400 } },
  ],
  "the daemon's MTU, and its network's where that is less": [
    { snapshot: { settings: { mtu: 1300, serviceCidr: undefined } } },
    { mtu: 1300, mtuOfNetwork: true },
  ],
  "a daemon's MTU that its network does not have": [
    { snapshot: { settings: { mtu: 9000, serviceCidr: undefined } } },
    { mtu: 1450, mtuOfNetwork: true },
  ],
  "names, where the gateways answer": [
    { snapshot: { ...dual, domain: "podnet" } },
    { dns: { nameservers: ["10.77.0.1", "fd77::1"], search: ["podnet", "example.org"] } },
  ],
  "name servers of the configuration": [
    {
      asked: { dns: { nameservers: ["1.1.1.1"], search: [], options: ["ndots:2"] } },
      snapshot: { domain: "podnet" },
    },
    { dns: { nameservers: ["1.1.1.1"], search: [], options: ["ndots:2"] } },
  ],
  "name servers of the runtime, before the configuration's": [
    {
      asked: {
        dns: { nameservers: ["1.1.1.1"], search: [], options: [] },
        capabilities: { dns: { nameservers: ["8.8.8.8"], search: [], options: [] } },
      },
    },
    { dns: { nameservers: ["8.8.8.8"] } },
  ],
  "a port at no address: at all of the host's; IPv4's is translated, IPv6's served": [
    { asked: ports(port()) },
    {
      published: [{ hostPort: 8080, at: [at("0.0.0.0", "10.77.0.2"), at("::", "10.77.0.2")] }],
      fragment: { published: [{ hostPort: 8080, podIp: "10.77.0.2", bridge: "pn-blue" }] },
    },
  ],
  "a port of both families": [
    { asked: ports(port()), snapshot: dual },
    {
      published: [{ at: [at("0.0.0.0", "10.77.0.2"), at("::", "fd77::c0a8:5")] }],
      fragment: { published: [{ podIp: "10.77.0.2" }, { podIp: "fd77::c0a8:5" }] },
    },
  ],
  "a port at an address of the host, and one on loopback, which needs no rule": [
    {
      asked: ports(port({ hostIp: "192.0.2.1" as Ip }), port({ hostIp: "127.0.0.1" as Ip })),
      snapshot: dual,
    },
    {
      published: [{ at: [at("192.0.2.1", "10.77.0.2")] }, { at: [at("127.0.0.1", "10.77.0.2")] }],
      fragment: { published: [{ hostIp: "192.0.2.1" }] },
    },
  ],
  "ports one after the other, and one of them by SCTP": [
    {
      asked: ports(port(), port({ hostPort: 8081, containerPort: 81 }), port({ protocol: "sctp" })),
    },
    {
      published: [
        { hostPort: 8080, podPort: 80, count: 1 },
        { hostPort: 8081, podPort: 81, count: 1 },
        { protocol: "sctp", at: [at("0.0.0.0", "10.77.0.2")] },
      ],
    },
  ],
  "ports that its runtime holds: loopback leads to ports of podnetd's, ::1 where it has an IPv6 address":
    [
      { asked: heldByRuntime, snapshot: { ...dual, hostPorts: withLoopback6 } },
      {
        portsHeldByRuntime: true,
        published: [{ hostPort: 8080, at: [{ hostIp: "0.0.0.0" }, { hostIp: "::" }] }],
        forwarders: [
          { hostPort: 32_769, podPort: 80, at: [at("127.0.0.1", "10.77.0.2")] },
          { hostPort: 32_768, podPort: 80, at: [at("::1", "fd77::c0a8:5")] },
        ],
        fragment: {
          loopback: [
            { protocol: "tcp", hostIp: "127.0.0.1", hostPort: 8080, toPort: 32_769 },
            { protocol: "tcp", hostIp: "::1", hostPort: 8080, toPort: 32_768 },
          ],
        },
      },
    ],
  "ports that its runtime holds, of a container with IPv4 alone": [
    { asked: heldByRuntime, snapshot: { hostPorts: withLoopback6 } },
    { fragment: { loopback: [{ hostIp: "127.0.0.1", hostPort: 8080, toPort: 32_769 }] } },
  ],
  "ports that its runtime holds at another loopback address": [
    {
      asked: { ...ports(port({ hostIp: "127.0.0.5" as Ip })), portsHeldByRuntime: true },
      snapshot: { hostPorts: withLoopback6 },
    },
    {
      forwarders: [{ at: [at("127.0.0.1", "10.77.0.2")] }],
      fragment: { loopback: [{ hostIp: "127.0.0.5", hostPort: 8080 }] },
    },
  ],
  "rates: a burst of a tenth of a second at least, or the one asked for": [
    {
      asked: {
        capabilities: { bandwidth: { ingressRate: 80_000_000, egressRate: 9, egressBurst: 7 } },
      },
    },
    {
      fragment: {
        rates: { toGuest: rate(80_000_000, 8_000_000), fromGuest: rate(9, 7) },
      },
    },
  ],
  "a low rate towards it: some frames at once, and no link for the way out": [
    { asked: { mtu: 1000, capabilities: { bandwidth: { ingressRate: 1000 } } } },
    { fragment: { rates: { toGuest: rate(1000, 80_000) } } },
  ],
  "no service range: macvlan0 still leaves by the gateway": [{}, macvlan()],
  "the daemon's service range": [{ snapshot: service("10.96.0.0/12") }, macvlan("10.96.0.0/12")],
  "the configuration's service range, before the daemon's": [
    { asked: { serviceCidrs: ["172.30.0.0/16" as Cidr] }, snapshot: service("10.96.0.0/12") },
    macvlan("172.30.0.0/16"),
  ],
  "service ranges of both families: IPv4's": [
    { asked: { serviceCidrs: ["fd30::/112", "172.30.0.0/16"] as Cidr[] }, snapshot: dual },
    macvlan("172.30.0.0/16"),
  ],
  "a service range of IPv6 alone: the daemon's": [
    { asked: { serviceCidrs: ["fd30::/112" as Cidr] }, snapshot: service("10.96.0.0/12") },
    macvlan("10.96.0.0/12"),
  ],
  "a network of IPv6 alone has no macvlan0": [
    { asked: { serviceCidrs: ["172.30.0.0/16" as Cidr] }, snapshot: { subnets: [six] } },
    { fragment: { macvlan: undefined } },
  ],
  "a pair of the caller's": [
    { hostVeth: "veth9" as IfName },
    { fragment: { hostLink: "veth9", madeByCaller: true } },
  ],
  "the pod that it is for, and an isolated network": [
    {
      args: { K8S_POD_NAMESPACE: "shop", K8S_POD_NAME: "web-1" },
      snapshot: { network: { ...network, isolated: true } },
    },
    { pod: "shop/web-1", fragment: { isolated: true } },
  ],
  "labels of the configuration, and of the pod's annotation": [
    {
      asked: {
        args: { ips: [], labels: new Map([["role", "builder"]]) },
        capabilities: { annotations: new Map([["podnet/labels", "role=other, app=web"]]) },
      },
    },
    { labels: { role: "builder", app: "web" } },
  ],
};

for (const [what, [asks, gets]] of Object.entries(cases))
  test(`the plan of a container: ${what}`, (t) => t.like(plannedWhole(asks), gets));

test("a pod's annotation gives no label that policies rely on; the network's configuration does", (t) => {
  // Whoever may set annotations in Kubernetes is not podnet's administrator.
  const label = (annotation: string, given: readonly (readonly [string, string])[]) =>
    plannedWhole({
      asked: {
        args: { ips: [], labels: new Map(given) },
        capabilities: { annotations: new Map([["podnet/labels", annotation]]) },
      },
    });
  t.throws(() => label("app=web,admin.podnet/trusted=yes", []), {
    message: /Annotation podnet\/labels has the label admin\.podnet\/trusted/,
  });
  t.throws(() => label("admin.podnet/trusted=yes", [["admin.podnet/trusted", "no"]]));
  t.like(label("app=web", [["admin.podnet/trusted", "yes"]]), {
    labels: { app: "web", "admin.podnet/trusted": "yes" },
  });
});

test("what no caller asked for stands in no plan", (t) => {
  const plan = plannedWhole({});
  const decided = [
    "published",
    "portsHeldByRuntime",
    "pod",
    "labels",
    "bandwidth",
    "hostVeth",
    "namespace",
  ];
  for (const name of decided) t.false(name in plan, name);
  for (const name of ["published", "rates", "madeByCaller", "namespace"])
    t.false(name in plan.fragment, name);
});

test("what a runtime holds leads nowhere on loopback by SCTP, at an address of the host, and without firewall rules", (t) => {
  const nowhere = (mapping: Partial<CniPort>, more: Partial<typeof hostPorts> = {}): void => {
    const plan = planned({
      asked: { ...ports(port(mapping)), portsHeldByRuntime: true },
      snapshot: { hostPorts: { ...withLoopback6, ...more } },
    });
    t.deepEqual([plan.forwarders, plan.loopback], [undefined, undefined]);
  };
  nowhere({ protocol: "sctp" });
  nowhere({ hostIp: "192.0.2.1" as Ip });
  nowhere({ hostIp: "127.0.0.1" as Ip }, { firewall: false });
});
