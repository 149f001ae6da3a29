import test from "ava";
import { encode } from "dns-packet";
import type { Ip } from "../../../../core/address.ts";
import type { askUpstream } from "../../../../daemon/dns/ask-upstream.ts";
import { Forwarder } from "../../../../daemon/dns/forward.ts";
import { framed, MessageStream } from "../../../../daemon/dns/message-stream.ts";
import { isAnswer, type Query, readQuery } from "../../../../daemon/dns/query.ts";
import { upstreamsOf } from "../../../../daemon/dns/upstreams.ts";

const [a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"] as [Ip, Ip, Ip];

function query(name: string): Query {
  const read = readQuery(encode({ type: "query", id: 1, questions: [{ name, type: "A" }] }));
  if (read.kind !== "query") throw new Error(read.kind);
  return read.query;
}
const asked = query("a.example");

/** A forwarder whose servers say what they are given: an rcode, or nothing. */
function forwarder(says: Partial<Record<Ip, readonly (number | undefined)[]>>) {
  const seen: Ip[] = [];
  const ask: typeof askUpstream = async (_query, server) => {
    const nth = seen.filter((each) => each === server).length;
    seen.push(server);
    const rcode = says[server]?.[nth];
    return rcode === undefined ? undefined : Uint8Array.of(0, 0, 0x80, rcode);
  };
  return { seen, one: new Forwarder(ask) };
}

test("one server alone is asked again, for datagrams get lost", async (t) => {
  const { one, seen } = forwarder({ [a]: [undefined, undefined, 0] });
  t.truthy(await one.forward(asked, "udp", [a]));
  t.deepEqual(seen, [a, a, a]);
  t.is(await forwarder({}).one.forward(asked, "udp", [a]), undefined);
  t.is(await forwarder({}).one.forward(asked, "udp", []), undefined);
});

test("who answers is asked first from then on, until it does not", async (t) => {
  const { one, seen } = forwarder({ [b]: [0, 0, undefined], [c]: [0] });
  for (let nth = 0; nth < 3; nth++) await one.forward(asked, "udp", [a, b, c]);
  t.deepEqual(seen, [a, b, b, b, c]);
});

test("a server that refuses is passed over, and its refusal is passed on when no other has more", async (t) => {
  const { one, seen } = forwarder({ [a]: [5], [b]: [3] });
  t.is(
    (await one.forward(asked, "udp", [a, b]))?.[3],
    3,
    "that there is no such name is an answer",
  );
  t.deepEqual(seen, [a, b]);
  const refusing = forwarder({ [a]: [2], [b]: [5] });
  t.is((await refusing.one.forward(asked, "udp", [a, b]))?.[3], 5);
  t.deepEqual(refusing.seen, [a, b]);
});

/** A query by a guest that takes so much by UDP, and servers that cut short what they say by it. */
function cutting(udpBytes: number, byTcp: Uint8Array | undefined, lost = 0) {
  const short = Uint8Array.of(0, 0, 0x82, 0);
  const seen: string[] = [];
  const ask: typeof askUpstream = async (_query, server, way) => {
    seen.push(`${way} ${server}`);
    if (seen.length <= lost) return undefined;
    return way === "tcp" ? byTcp : short;
  };
  const from = { ...asked, udpBytes };
  return { short, seen, forward: () => new Forwarder(ask).forward(from, "udp", [a]) };
}

test("an answer that is cut shorter than the guest would take is asked for by TCP, within the tries there are", async (t) => {
  const whole = Uint8Array.of(0, 0, 0x80, 0, 1);
  const room = cutting(1232, whole);
  t.is(await room.forward(), whole);
  t.deepEqual(room.seen, [`udp ${a}`, `tcp ${a}`]);
  const none = cutting(512, whole);
  t.is(await none.forward(), none.short, "it would not fit");
  t.deepEqual(none.seen, [`udp ${a}`]);
  const late = cutting(1232, whole, 2);
  t.is(await late.forward(), late.short, "the guest asks on itself");
  t.is(late.seen.length, 3);
  for (const tcp of [undefined, Uint8Array.of(0, 0, 0x80, 5)]) {
    const without = cutting(4096, tcp);
    t.is(await without.forward(), without.short, "better than nothing");
  }
});

test("the nearest list that names other servers is asked", (t) => {
  const none = { network: [], configured: [], host: [], gateways: [] };
  t.deepEqual(upstreamsOf({ ...none, network: [a], configured: [b], host: [c] }), [a]);
  t.deepEqual(upstreamsOf({ ...none, configured: [b], host: [c] }), [b]);
  t.deepEqual(upstreamsOf({ ...none, host: [c, a, b, "192.0.2.4" as Ip] }), [c, a, b]);
  t.deepEqual(upstreamsOf({ ...none, network: [a], host: [c], gateways: [a] }), [c]);
  t.deepEqual(upstreamsOf(none), []);
});

test("an answer is one to what was asked, letters of either case", (t) => {
  const reply = (name: string, type: "A" | "AAAA" = "A", id = 9): Uint8Array =>
    encode({ type: "response", id, questions: [{ name, type }] });
  t.true(isAnswer(reply("a.example"), asked, 9));
  t.true(isAnswer(reply("A.eXample"), asked, 9));
  t.false(isAnswer(reply("b.example"), asked, 9));
  t.false(isAnswer(reply("a.example", "AAAA"), asked, 9));
  t.false(isAnswer(reply("a.example", "A", 8), asked, 9));
  t.false(isAnswer(asked.bytes, asked, 1), "a question is none");
  t.false(isAnswer(reply("a.example").subarray(0, 20), asked, 9));
});

test("messages of a connection are put together, and too long a one ends it", (t) => {
  const stream = new MessageStream(100);
  const [one, two] = [new Uint8Array(3).fill(1), new Uint8Array(100).fill(2)];
  const bytes = Uint8Array.from([...framed(one), ...framed(two)]);
  const found = Array.from(bytes, (byte) => stream.push(Uint8Array.of(byte))).flat();
  t.deepEqual(found, [one, two]);
  t.deepEqual(stream.push(bytes), [one, two]);
  t.false(stream.tooLong);
  t.deepEqual(stream.push(Uint8Array.of(0, 101)), []);
  t.true(stream.tooLong);
  t.deepEqual(stream.push(bytes), []);
});
