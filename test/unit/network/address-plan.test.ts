import test from "ava";
import * as fc from "fast-check";
import { contains, ipOf, networkOf, rangeOf, ipToBigInt } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { planAddresses } from "../../../network/model/address-plan.ts";

test("A network address means its first address is the gateway", (t) => {
  t.deepEqual<unknown, unknown>(planAddresses("192.168.123.0/24"), {
    network: "192.168.123.0/24",
    gateway: "192.168.123.1/24",
    reserved: ["192.168.123.0", "192.168.123.1", "192.168.123.255"],
  });
  t.is<string, string>(planAddresses("fd00:123::/64").gateway, "fd00:123::1/64");
});

test("Host bits mean exactly that address is the gateway", (t) => {
  const plan = planAddresses("192.168.123.254/24");
  t.is<string, string>(plan.gateway, "192.168.123.254/24");
  t.is<string, string>(plan.network, "192.168.123.0/24");
  t.deepEqual<unknown, unknown>(planAddresses("10.0.0.6/30"), {
    network: "10.0.0.4/30",
    gateway: "10.0.0.6/30",
    reserved: ["10.0.0.4", "10.0.0.6", "10.0.0.7"],
  });
});

const refused: readonly (readonly [string, string])[] = [
  ["192.168.123.255/24", "ADDRESS_RESERVED"],
  ["192.168.123.0/31", "ADDRESS_INVALID"],
  ["192.168.123.1/32", "ADDRESS_INVALID"],
  ["0.0.0.0/0", "ADDRESS_INVALID"],
  ["10.0.0.0/7", "ADDRESS_INVALID"],
  ["127.1.0.0/16", "ADDRESS_INVALID"],
  ["224.0.0.0/8", "ADDRESS_INVALID"],
  ["240.0.0.0/8", "ADDRESS_INVALID"],
  ["fe80::/64", "ADDRESS_INVALID"],
  ["ff02::/64", "ADDRESS_INVALID"],
  ["fd00::/127", "ADDRESS_INVALID"],
  ["192.168.123.0", "ADDRESS_INVALID"],
  ["192.168.123/24", "ADDRESS_INVALID"],
  ["", "ADDRESS_INVALID"],
];

for (const [text, code] of refused) {
  test(`"${text}" is refused with ${code} and a hint`, (t) => {
    const error = t.throws(() => planAddresses(text, "networks.default.cidr"));
    t.true(isPodnetError(error) && error.code === code);
    if (isPodnetError(error)) {
      t.truthy(error.hint);
      t.is(error.field, "networks.default.cidr");
    }
  });
}

test("Whatever is accepted, the gateway is inside, reserved and neither end of an IPv4 subnet", (t) => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0x0a000000, max: 0x0affffff }),
      fc.integer({ min: 8, max: 30 }),
      (address, length) => {
        const text = `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}/${length}`;
        try {
          const plan = planAddresses(text);
          const gateway = ipOf(plan.gateway);
          const { first, last } = rangeOf(plan.network);
          t.is(networkOf(plan.gateway), plan.network);
          t.true(contains(plan.network, gateway) && plan.reserved.includes(gateway));
          t.not(ipToBigInt(gateway), first);
          t.not(ipToBigInt(gateway), last);
        } catch (error) {
          t.true(isPodnetError(error, "ADDRESS_RESERVED"));
        }
      },
    ),
  );
});
