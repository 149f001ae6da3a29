import test from "ava";
import fc from "fast-check";
import { familyOf, type Ip, ipFromBigInt, ipToBigInt, parseIp } from "../../../core/address.ts";
import type { IpRange } from "../../../core/ip-range.ts";
import { internalRanges, isInternal } from "../../../core/special-addresses.ts";
import { inRanges, merged, without } from "../../../policy/ranges.ts";

/** Addresses at the ends of the families, where sums overflow, and of both families. */
const bases = [0n, 2n ** 32n - 32n] as const;
const at = (family: 4 | 6, base: bigint, offset: number): Ip =>
  ipFromBigInt(family, base + BigInt(offset));
const range = fc
  .tuple(fc.constantFrom(4 as const, 6 as const), fc.constantFrom(...bases), fc.nat(31), fc.nat(31))
  .map(
    ([family, base, a, b]): IpRange => ({
      first: at(family, base, Math.min(a, b)),
      last: at(family, base, Math.max(a, b)),
    }),
  );
const every = ([4, 6] as const).flatMap((family) =>
  bases.flatMap((base) => Array.from({ length: 32 }, (_, i) => at(family, base, i))),
);
const holds = (ranges: readonly IpRange[], ip: Ip): boolean =>
  ranges.some((one) => inRanges([one], ip));

test("merged ranges have the addresses of all, in order and apart", (t) => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 8 }), (ranges) => {
      const joined = merged(ranges);
      for (const ip of every) t.is(inRanges(joined, ip), holds(ranges, ip));
      t.deepEqual(merged(joined), joined);
      t.true(joined.length <= ranges.length);
    }),
  );
});

test("a range without others has its addresses that are in none of them", (t) => {
  fc.assert(
    fc.property(range, fc.array(range, { maxLength: 6 }), (whole, except) => {
      const left = without(whole, except);
      for (const ip of every)
        t.is(inRanges(left, ip), holds([whole], ip) && !holds(except, ip), ip);
    }),
  );
});

test("addresses that a public name has no business with", (t) => {
  const inside =
    "0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 169.254.169.254 172.31.255.255 192.168.0.1 198.18.0.1 " +
    "224.0.0.1 255.255.255.255 :: ::1 ::ffff:8.8.8.8 fe80::1 fd00:ec2::254 ff02::1 2001::1 " +
    "2002:a00:1:: 64:ff9b::a00:1 fec0::1";
  for (const ip of inside.split(" ")) t.true(isInternal(parseIp(ip)), ip);
  const outside =
    "8.8.8.8 172.32.0.1 100.128.0.1 192.0.1.1 223.255.255.255 2606:4700::1 64:ff9b::808:808";
  for (const ip of outside.split(" ")) t.false(isInternal(parseIp(ip)), ip);
  // The kernel has them as ranges: at their ends, and next to them.
  const ranges = merged(internalRanges);
  const ends = [...internalRanges, ...ranges].flatMap(({ first, last }) => {
    const family = familyOf(first);
    const most = 2n ** (family === 4 ? 32n : 128n) - 1n;
    const [from, to] = [ipToBigInt(first), ipToBigInt(last)];
    return [from - 1n, from, to, to + 1n]
      .filter((value) => value >= 0n && value <= most)
      .map((value) => ipFromBigInt(family, value));
  });
  for (const ip of [
    ...ends,
    ...[inside, outside]
      .join(" ")
      .split(" ")
      .map((text) => parseIp(text)),
  ])
    t.is(inRanges(ranges, ip), isInternal(ip), ip);
});
