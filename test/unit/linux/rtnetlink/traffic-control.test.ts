/** Alongside what iproute2 6.1.0 sends and what Linux 6.18 answers it, captured by strace. */
import test from "ava";
import {
  addIngress,
  deleteIngress,
  parseQdisc,
  setTokenBucket,
} from "../../../../linux/rtnetlink/qdisc.ts";
import { addRedirect, parseFilter } from "../../../../linux/rtnetlink/redirect.ts";
import { getNamespaceId, parseNamespaceId } from "../../../../linux/rtnetlink/namespace-id.ts";
import { bucketOf, hasBucket } from "../../../../network/rates/bucket.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, "hex"));
const tcmsg = (index: string, handle: string, parent: string, info = "00000000"): string =>
  `00000000${index}${handle}${parent}${info}`;
const ingressKind = "0c000100696e677265737300";

test("a place for filters is asked for and given up as tc does", (t) => {
  const whole = `${tcmsg("03000000", "0000ffff", "f1ffffff")}${ingressKind}`;
  t.is(hex(addIngress(3).payload), whole);
  t.is(hex(deleteIngress(3).payload), whole);
});

// tc filter add dev va parent ffff: protocol all prio 1 u32 match u8 0 0 action mirred egress
// redirect dev vb
const captured =
  "38000700340001000b0001006d697272656400002400028020000200000000000000000004000000000000000000000001000000020000002400050001000100" +
  "00000000000000000000000000000000000000000000000000000000".padEnd(56, "0");

test("a redirection is what tc asks for", (t) => {
  const kind = "0800010075333200";
  const sent = hex(addRedirect(3, 2).payload);
  const start = `${tcmsg("03000000", "00000000", "0000ffff", "00030100")}${kind}`;
  t.true(sent.startsWith(start));
  // (We say of nests that they are such; tc says it of the innermost alone.)
  const said = sent.slice(start.length + 8);
  t.is(said.replaceAll("38000780", "38000700").replaceAll("34000180", "34000100"), captured);
});

test("a redirection is read as the kernel reports it, and the tables behind it are none", (t) => {
  const options =
    "240005000100010000000000000000000000000000000000000000000000000000000000080002000000008008000b0008000000a8000700a40001000b0001006d697272656400004400040014000100000000000000000000000000000000001400070000000000000000000000000000000000180003000000000000000000000000000000000000000000" +
    "08000a0000000000480002002000020001000000000000000400000001000000010000000100000002000000240001004100000000000000410000000000000000000000000000000000000000000000";
  const kind = "0800010075333200";
  const head = tcmsg("03000000", "00080080", "0000ffff", "00030100");
  const length = (size: number): string => Buffer.from(Uint16Array.of(size).buffer).toString("hex");
  const nested = `${length(4 + options.length / 2)}0200${options}`;
  t.deepEqual(parseFilter(bytes(`${head}${kind}08000b0000000000${nested}`)), {
    index: 3,
    kind: "u32",
    priority: 1,
    redirectsTo: 2,
  });
  t.is(parseFilter(bytes(`${head}${kind}08000b00000000000c0002000800040001000000`)), undefined);
});

test("a token bucket is read as the kernel reports it", (t) => {
  const head = tcmsg("03000000", "00000280", "ffffffff", "03000000");
  const parms = "28000100000100000000000048e80100000000000000000000000000204e00000050c30000000000";
  const queue = parseQdisc(bytes(`${head}08000100746266002c000200${parms}`));
  t.like(queue, { index: 3, kind: "tbf", handle: 0x80020000, parent: 0xffffffff });
  // rate 1mbit burst 100k limit 20000
  t.deepEqual(queue.tbf, {
    rate: 125_000,
    limit: 20_000,
    leastCost: 0,
    fullNanoseconds: 819_200_000,
  });
  t.true(hasBucket(queue.tbf, { rate: 125_000, burst: 102_400, limit: 20_000 }));
  t.false(hasBucket(queue.tbf, { rate: 125_000, burst: 204_800, limit: 20_000 }));
  t.false(hasBucket(queue.tbf, { rate: 125_001, burst: 102_400, limit: 20_000 }));
  t.false(hasBucket(undefined, { rate: 1, burst: 1, limit: 1 }));
});

test("a rate beyond 32 bits stands in a field of its own", (t) => {
  const rate = 5_000_000_000;
  const { payload } = setTokenBucket(3, { rate, burst: 1 << 20, limit: 1 << 20 });
  t.is(parseQdisc(payload).tbf?.rate, rate);
});

test("limits are what was asked for, within what the kernel takes", (t) => {
  const mtu = 1500;
  t.deepEqual(bucketOf({ bitsPerSecond: 8_000_000, burstBits: 800_000 }, mtu), {
    rate: 1_000_000,
    burst: 100_000,
    limit: 125_000,
  });
  // A frame always fits, and what no limit is meant to be is one all the same.
  t.is(bucketOf({ bitsPerSecond: 8_000_000, burstBits: 1 }, mtu).burst, 1518);
  const unlimited = bucketOf({ bitsPerSecond: 1_000_000, burstBits: 4_294_967_295 }, mtu);
  t.deepEqual(unlimited, { rate: 125_000, burst: 31_250_000, limit: 16 << 20 });
  t.is(bucketOf({ bitsPerSecond: 1e10, burstBits: 4_294_967_295 }, mtu).burst, 536_870_911);
  t.is(bucketOf({ bitsPerSecond: 1e10, burstBits: 1e12 }, mtu).burst, 0xffffffff);
  const slow = bucketOf({ bitsPerSecond: 1, burstBits: 1 }, mtu);
  t.true(slow.burst / slow.rate <= 250);
});

test("the number of a namespace is asked for by an open descriptor; none is none", (t) => {
  t.is(hex(getNamespaceId(7).payload), "000000000800030007000000");
  t.is(parseNamespaceId(bytes("000000000800010005000000")), 5);
  t.is(parseNamespaceId(bytes("0000000008000100ffffffff")), undefined);
  t.is(parseNamespaceId(bytes("00000000")), undefined);
});
