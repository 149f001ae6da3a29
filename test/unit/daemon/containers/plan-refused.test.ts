import test from "ava";
import type { Ip } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { maxBridgePorts } from "../../../../network/model/port-limit.ts";
import {
  type Case,
  four,
  given,
  hostPorts,
  ips,
  planned,
  port,
  ports,
} from "./fixtures/planned.ts";

const prevResult = {
  interfaces: [{ name: "eth0", sandbox: "/run/netns/one" }],
  ips: [],
  routes: [],
  dns: { nameservers: [], search: [], options: [] },
};
const mappings = "runtimeConfig.portMappings";
const taken = {
  kind: "pod",
  name: "web",
  protocol: "tcp",
  hostIp: "0.0.0.0",
  hostPort: 8080,
  count: 1,
} as never;

const refusals: Readonly<
  Record<string, readonly [asks: Case, code: string, field: string | undefined, says: RegExp]>
> = {
  "an address of no subnet": [
    { asked: ips("10.78.0.9") },
    "ADDRESS_OUT_OF_RANGE",
    "ips",
    /10\.78\.0\.9 is not in network "blue"/,
  ],
  "two addresses of a subnet": [
    { asked: ips("10.77.0.8", "10.77.0.9") },
    "INVALID_ARGUMENT",
    "ips",
    /Two addresses/,
  ],
  "a held address": [
    {
      asked: ips("10.77.0.9"),
      snapshot: { asked: { "10.77.0.9": { kind: "held", by: 'pod "web"' } } as never },
    },
    "ADDRESS_IN_USE",
    "ips",
    /held by pod "web"/,
  ],
  "a reserved address": [
    {
      asked: ips("10.77.0.1"),
      snapshot: { asked: { "10.77.0.1": { kind: "reserved", why: "the gateway" } } as never },
    },
    "ADDRESS_RESERVED",
    "ips",
    /the gateway/,
  ],
  "a pool that is used up": [
    { snapshot: { subnets: [{ ...four, next: undefined }] } },
    "POOL_EXHAUSTED",
    undefined,
    /no address left in 10\.77\.0\.0\/24/,
  ],
  "a held MAC": [
    { asked: { capabilities: { mac: given } }, snapshot: { macHolder: 'container "two"' } },
    "MAC_IN_USE",
    "mac",
    /held by container "two"/,
  ],
  "a longer MTU than the network's": [
    { asked: { mtu: 1451 } },
    "MTU_OUT_OF_RANGE",
    "mtu",
    /1451 is more than network "blue" has \(1450\)/,
  ],
  "a bridge that is full": [
    { snapshot: { ports: maxBridgePorts } },
    "BRIDGE_FULL",
    undefined,
    /pn-blue/,
  ],
  "a link that an earlier plugin made": [
    { asked: { prevResult } },
    "NAME_IN_USE",
    "prevResult.interfaces",
    /"eth0" already/,
  ],
  "a host port that a pod has": [
    { asked: ports(port()), snapshot: { hostPorts: { ...hostPorts, taken: [taken] } } },
    "PORT_IN_USE",
    `${mappings}[0].hostPort`,
    /8080\/tcp at 0\.0\.0\.0 is published by pod "web"/,
  ],
  "a port of IPv6 without any": [
    { asked: ports(port({ hostPort: 8081 }), port({ hostIp: "::" as Ip })) },
    "UNSUPPORTED",
    `${mappings}[1]`,
    /^The container has no IPv6 address/,
  ],
  "a port at an address that the host has not": [
    { asked: ports(port({ hostIp: "192.0.2.9" as Ip })) },
    "ADDRESS_INVALID",
    `${mappings}[0].hostIP`,
    /This host has no address 192\.0\.2\.9/,
  ],
  "a port without firewall rules": [
    { asked: ports(port()), snapshot: { hostPorts: { ...hostPorts, firewall: false } } },
    "UNSUPPORTED",
    `${mappings}[0].hostIP`,
    /without firewall rules/,
  ],
};

for (const [what, [asks, code, field, says]] of Object.entries(refusals))
  test(`no plan of a container, and words that its runtime's user knows: ${what}`, (t) => {
    const error = t.throws(() => planned(asks), { instanceOf: PodnetError, message: says });
    t.deepEqual([error.code, error.field], [code, field]);
    t.notRegex(error.hint ?? "", /host alone|0 to have|Give it an interface|\bports\[/);
  });
