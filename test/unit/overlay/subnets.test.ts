import test from "ava";
import fc from "fast-check";
import type { Cidr, Ipv4, Ipv6 } from "../../../core/address.ts";
import { leaseWrite } from "../../../overlay/claim.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";
import type { Subnets } from "../../../overlay/flannel/key.ts";
import { grantOf, ownerFromBytes, ownerOf } from "../../../overlay/owner.ts";
import { type Lease, readEntry } from "../../../overlay/registry.ts";
import type { StoredKey } from "../../../overlay/store.ts";
import { chooseSubnets, fits, standInAddress } from "../../../overlay/subnets.ts";
import {
  configOf,
  first,
  four,
  host,
  mac,
  prefix,
  registryOf,
  stored,
  v4,
  v6,
} from "./fixtures/leases.ts";

const dual = configOf({
  Network: "10.77.0.0/16",
  EnableIPv6: true,
  IPv6Network: "fd00:77::/48",
});

/** A lease of a subnet, as far as a choice looks at it. */
const leaseOf = (v4: Cidr): Lease =>
  ({ kind: "lease", key: v4, subnets: { v4, v6: undefined } }) as unknown as Lease;

test("the first hundred free subnets are drawn from, around whatever is taken", (t) => {
  const taken = ["10.77.1.0/24", "10.77.3.0/25", "10.77.8.0/21", "10.0.0.0/16"] as Cidr[];
  const drawn = (...of: Cidr[]): (Cidr | undefined)[] => {
    const leases = of.map(leaseOf);
    const draws = Array.from({ length: 2000 }, (_, i) => i / 2000);
    const subnets = draws.map((draw) => chooseSubnets({ config: v4, leases, draw, ...first })?.v4);
    return [...new Set(subnets)];
  };
  const free = drawn(...taken);
  t.deepEqual(free.slice(0, 6), [
    "10.77.2.0/24",
    "10.77.4.0/24",
    "10.77.5.0/24",
    "10.77.6.0/24",
    "10.77.7.0/24",
    "10.77.16.0/24",
  ] as Cidr[]);
  t.is(free.length, 100);
  t.deepEqual(drawn("10.0.0.0/8" as Cidr), [undefined]);
  const all = drawn();
  t.is(all.length, 100);
  t.is(all[0], "10.77.1.0/24" as Cidr);
  t.is(all.at(-1), "10.77.100.0/24" as Cidr);
});

test("what a host had before is taken again if it is free and fits, each family by itself", (t) => {
  const choose = (previous: Subnets, config: OverlayConfig, ...keys: StoredKey[]) =>
    chooseSubnets({ config, previous, leases: registryOf(...keys), draw: 0.5 });
  const had = { v4: "10.77.200.0/24", v6: "fd00:77:0:99::/64" } as Subnets;
  t.deepEqual(choose(had, dual), had);
  const rest = choose(had, dual, stored("10.77.200.0-24", {}));
  t.is(rest?.v6, had.v6);
  t.not(rest?.v4, had.v4);
  t.is(choose(four("10.77.200.0/25"), v4)?.v4?.endsWith("/24"), true);
  t.not(choose(four("10.77.0.0/24"), v4)?.v4, "10.77.0.0/24" as Cidr);
});

test("no two choices that the registry tells apart share an address", (t) => {
  const small = configOf({ Network: "10.77.0.0/24", SubnetLen: 28 });
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.integer({ min: 1, max: 15 })),
        fc.double({ min: 0, max: 0.999_999, noNaN: true }),
        (numbers, draw) => {
          const keys = numbers.map((number) => stored(`10.77.0.${number * 16}-28`, {}));
          const chosen = chooseSubnets({
            config: small,
            previous: undefined,
            leases: registryOf(...keys),
            draw,
          });
          if (numbers.length === 15) t.is(chosen, undefined);
          else t.false(numbers.some((number) => chosen?.v4 === `10.77.0.${number * 16}/28`));
        },
      ),
      { numRuns: 200 },
    ),
  );
});

test("a network of a million subnets, a quarter of them taken, is chosen from", (t) => {
  const config = configOf({ Network: "10.0.0.0/8", SubnetLen: 28 });
  const leases = Array.from({ length: 250_000 }, (_, i) => {
    const base = 16 * (i + 1);
    return leaseOf(`10.${base >> 16}.${(base >> 8) & 255}.${base & 255}/28` as Cidr);
  });
  t.is(chooseSubnets({ config, leases, draw: 0, ...first })?.v4, "10.61.9.16/28" as Cidr);
});

test("hosts without IPv4 are told apart by stand-ins that flanneld does not have", (t) => {
  t.is(standInAddress("fd00:77:0:5::/64" as Cidr, v6), "240.0.0.5" as Ipv4);
  const subnets = { v4: undefined, v6: "fd00:77:0:5::/64" } as Subnets;
  const claim = leaseWrite({
    prefix,
    config: v6,
    host,
    subnets,
    leases: registryOf(),
    without: new Set(),
  });
  t.is(claim.kind, "write");
  if (claim.kind === "write")
    t.deepEqual(claim.write as unknown, {
      key: "/net/subnets/0.0.0.0-0&fd00:77:0:5::-64",
      value: `{"PublicIP":"240.0.0.5","PublicIPv6":"fd00:1::1","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"${mac}"}}`,
    });
  // More subnets than stand-ins: the rest is not handed out.
  const vast = configOf({ EnableIPv4: false, EnableIPv6: true, IPv6Network: "fd00::/32" });
  t.is(standInAddress("fd00:0:1000::/64" as Cidr, vast), undefined);
  t.false(fits({ v4: undefined, v6: "fd00:0:1000::/64" as Cidr }, vast));
});

test("the four things that break flannel cannot be written, whatever the configuration", (t) => {
  const config = fc.constantFrom(v4, v6, dual);
  const subnets: fc.Arbitrary<Subnets> = fc.constantFrom(
    four("10.77.5.0/24"),
    { v4: undefined, v6: "fd00:77:0:5::/64" as Cidr },
    { v4: "10.77.5.0/24" as Cidr, v6: "fd00:77:0:5::/64" as Cidr },
  );
  const other = fc.constantFrom("192.168.77.1", "192.168.77.2", "0.0.0.0");
  const other6 = fc.constantFrom("fd00:1::1", "fd00:1::2", null);
  let refused = 0;
  let written = 0;
  t.notThrows(() =>
    fc.assert(
      fc.property(config, subnets, other, other6, (given, wanted, PublicIP, PublicIPv6) => {
        const leases = registryOf(
          stored("10.77.9.0-24", { PublicIP, PublicIPv6 }),
          stored("junk", "junk"),
        );
        const claim = leaseWrite({
          prefix,
          config: given,
          host,
          subnets: wanted,
          leases,
          without: new Set(),
        });
        if (claim.kind !== "write") {
          refused++;
          return undefined;
        }
        written++;
        const { key, value } = claim.write;
        const entry = readEntry({ key, value, grant: 1n, createRevision: 1n, modRevision: 1n });
        t.is(entry.kind, "lease");
        if (entry.kind !== "lease") return undefined;
        t.is(entry.subnets.v6 !== undefined, given.v6 !== undefined, "families");
        t.is(entry.subnets.v4 !== undefined, given.v4 !== undefined, "families");
        t.not(entry.value.publicIp, PublicIP as Ipv4);
        if (PublicIPv6 !== null) t.not(entry.value.publicIp6, PublicIPv6 as Ipv6);
        t.true(key.startsWith("/net/subnets/"));
        return undefined;
      }),
      { numRuns: 200 },
    ),
  );
  t.true(refused > 20 && written > 20);
});

test("the mark of a podnet host is in the id of its leases, and flannel's have none", (t) => {
  const owner = ownerFromBytes(Uint8Array.of(0xff, 1, 2, 3));
  t.is(ownerOf(grantOf(owner, 0)), owner);
  t.is(ownerOf(grantOf(owner, 0.999_999)), owner);
  t.true(grantOf(owner, 0.999_999) < 1n << 63n);
  t.is(ownerOf(0x694d_7f3a_1122_3344n), undefined);
  t.is(ownerOf(0n), undefined);
});
