import { deepStrictEqual, strictEqual } from "node:assert";
import { NetworkSpecSchema } from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { parseJsonText, readJson } from "../../../api/json.ts";
import { validateNetwork } from "../../../api/validate/network.ts";
import { contains, familyOf, ipOf } from "../../../core/address.ts";
import { systemClock } from "../../../core/clock.ts";
import { AddressPool } from "../../../ipallocator/pool.ts";
import type { NetworkDefinition } from "../../../daemon/config/network-definition.ts";
import { planNetwork } from "../../../daemon/networks/plan-network.ts";
import { definition } from "../../lab/network-definition.ts";
import { json, type Target, textOf, valueOf } from "../engine/target.ts";

const refusals = [
  "INVALID_ARGUMENT",
  "UNKNOWN_FIELD",
  "ADDRESS_INVALID",
  "ADDRESS_RESERVED",
  "MTU_OUT_OF_RANGE",
  "NAME_IN_USE",
  "UNSUPPORTED",
] as const;
/** A network there is already. */
const other = definition("other", ["10.9.0.1/24"], { bridge: "pn-taken" as never });

/** What a network that was planned keeps to, whatever was asked for. */
function checkNetwork({ bridge, subnets, mtu }: NetworkDefinition): void {
  strictEqual(Buffer.byteLength(bridge) <= 15, true, bridge);
  const families = subnets.map(({ cidr }) => familyOf(cidr));
  strictEqual(new Set(families).size, subnets.length);
  strictEqual(mtu >= (families.includes(6) ? 1280 : 576), true, `${mtu}`);
  for (const { cidr, gateway, ranges, reserved } of subnets) {
    strictEqual(contains(cidr, ipOf(gateway)), true, gateway);
    for (const { first, last } of [...ranges, ...reserved])
      strictEqual(contains(cidr, first) && contains(cidr, last), true, `${first}-${last}`);
    const pool = new AddressPool({
      network: cidr,
      clock: systemClock,
      gateway: ipOf(gateway),
      ranges,
    });
    for (const range of reserved) pool.reserve(range, "asked for");
    for (const ip of pool.peek(2)) {
      strictEqual(pool.lookup(ip).state, "free");
      strictEqual(ranges.length === 0 || contains(cidr, ip), true, ip);
    }
  }
}

const subnet = {
  cidr: "10.20.0.1/24",
  ranges: ["10.20.0.9-10.20.0.20"],
  reserved: ["10.20.0.16/30"],
};
const good = {
  name: "blue",
  bridge: "br-blue",
  subnets: [subnet, { cidr: "fd00:20::/64", ranges: ["fd00:20::ff00/120"] }],
  mtu: 1400,
  dns: ["192.0.2.53", "2620:fe::fe"],
  dns_search: ["example.org"],
  masquerade: false,
  isolated: true,
  vlan_filtering: true,
  resolver: false,
  cloud_metadata: true,
  accept_translated: true,
  admit: ["10.21.0.0/16", "fd00:21::/32"],
  host_access: ["tcp/22", "udp/5000-5010"],
  connections: 512,
  policy: { default: "deny", rules: [{ name: "a", action: "allow", cidrs: ["10.0.0.0/8"] }] },
};

/** Nothing that may be left out, and what `good` has no room for. */
const others: readonly object[] = [
  { name: "plain", subnets: [subnet] },
  { ...good, name: "limited", limits: { in: { bandwidth: "10mbit" }, out: { packets: "1000" } } },
];

const wrong: readonly object[] = [
  { subnets: [] },
  { subnets: [subnet, subnet] },
  { subnets: [{ cidr: "10.20.0.255/24" }] },
  { subnets: [{ cidr: "10.20.0.0/31" }] },
  { subnets: [{ ...subnet, ranges: ["10.21.0.1"] }] },
  { subnets: [{ ...subnet, reserved: ["10.20.0.9-fd00::1"] }] },
  { mtu: 1000 },
  { mtu: 100, subnets: [subnet] },
  { dns: ["127.0.0.1"] },
  { dns_search: ["no domain"] },
  { name: "Blue" },
  { bridge: "a b" },
  { host_access: ["all"] },
  { connections: 513 },
  { policy: { default: "alow" } },
  { policy: { rules: [{ name: "a", action: "deny", domains: ["a.example"], ports: [9] }] } },
  { host_access: ["tcp/9-5"] },
  { bridge: "pn-taken" },
  { bridge: "", name: "taken" },
];

const readSpec = (bytes: Uint8Array) => readJson(NetworkSpecSchema, parseJsonText(textOf(bytes)));

/** Networks as they are asked for by API, read and planned. */
export const networkSpecs: Target = {
  name: "network-spec",
  files: [
    "api/validate/network.ts",
    "daemon/networks/plan-network.ts",
    "core/ip-range.ts",
    "core/host-access.ts",
  ],
  // About networks there are alongside it, which no request brings.
  except: ["refuseOverlaps", "overlapsOfNetworks", "ipRangeText", "hostAccessTexts"],
  seeds: [
    new Uint8Array(),
    ...[good, ...others, ...wrong.map((each) => ({ ...good, ...each }))].map(json),
  ],
  words: [
    "subnets",
    "cidr",
    "ranges",
    "reserved",
    "10.20.0.0/24",
    "fd00:20::/64",
    "-",
    "host_access",
    "tcp/22",
    "all",
  ],
  run(bytes) {
    const planned = valueOf(refusals, () => {
      const spec = validateNetwork(bytes.length === 0 ? undefined : readSpec(bytes));
      return { spec, network: planNetwork(spec, [other], undefined, false) };
    });
    if (planned === undefined) return;
    checkNetwork(planned.network);
    const again = planNetwork(planned.spec, [other], planned.network, true);
    deepStrictEqual(again, { ...planned.network, mayOverlap: true });
    deepStrictEqual(planNetwork(planned.spec, [other], again, false), again);
    const moved = { ...planned.network, bridge: "elsewhere" as never };
    valueOf(refusals, () => planNetwork(planned.spec, [other], moved, false));
  },
};
