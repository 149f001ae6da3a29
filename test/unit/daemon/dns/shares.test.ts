import test from "ava";
import { decode, encode } from "dns-packet";
import type { NetworkName } from "../../../../core/names.ts";
import { type Asker, FairShares } from "../../../../daemon/dns/fair-shares.ts";
import { type Query, readQuery, rcodes } from "../../../../daemon/dns/query.ts";
import { timesIn } from "../../../../daemon/dns/record-times.ts";
import { StaleAnswers } from "../../../../daemon/dns/stale-answers.ts";

const asker = (network: string, holder: string): Asker => ({
  network: network as NetworkName,
  holder: holder as Asker["holder"],
});

/** Shares of which places are taken by name; `lost` has who was displaced, in order. */
function shares(limits: ConstructorParameters<typeof FairShares>[0]) {
  const one = new FairShares(limits);
  const lost: string[] = [];
  const take = (network: string, holder: string, name = `${network} ${holder}`) =>
    one.take(asker(network, holder), () => void lost.push(name));
  return { take, lost };
}

test("an asker has its share and no more, and a place that is returned is free again", (t) => {
  const { take, lost } = shares({ asker: 2, network: 10, all: 20 });
  const first = take("blue", "a");
  t.truthy(first);
  t.truthy(take("blue", "a"));
  t.is(take("blue", "a"), undefined);
  first?.[Symbol.dispose]();
  first?.[Symbol.dispose]();
  t.truthy(take("blue", "a"));
  t.is(take("blue", "a"), undefined, "returned twice, free once");
  t.deepEqual(lost, []);
});

test("in a full network whoever has less gets the oldest place of whoever has most", (t) => {
  const { take, lost } = shares({ asker: 4, network: 8, all: 100 });
  for (const pod of ["a", "b"]) for (let nth = 0; nth < 4; nth++) take("blue", pod, `${pod}${nth}`);
  for (let nth = 0; nth < 2; nth++) t.truthy(take("blue", "c"));
  t.deepEqual(lost, ["a0", "b0"]);
  t.truthy(take("red", "a"), "another network has room of its own");
  t.is(take("blue", "c"), undefined, "with one more it would have as much as they had");
  t.truthy(take("blue", "d"));
  t.deepEqual(lost, ["a0", "b0", "a1"]);
});

test("when all is full, a network that has less gets a place of the one that has most", (t) => {
  const { take, lost } = shares({ asker: 4, network: 12, all: 12 });
  for (const pod of ["a", "b", "c"]) for (let nth = 0; nth < 4; nth++) take("blue", pod);
  for (let nth = 0; nth < 4; nth++) t.truthy(take("red", "a"));
  t.is(lost.filter((each) => each.startsWith("blue")).length, 4);
  t.truthy(take("red", "b"));
  t.truthy(take("red", "b"));
  t.deepEqual(lost.slice(6), [], "they have six each by now");
  t.truthy(take("red", "c"));
  t.deepEqual(lost.slice(6), ["red a"], "its own network gives it one");
  t.truthy(take("grey", "a"));
  t.is(lost.length, 8);
});

test("whatever hostile askers do, one that has nothing gets a place", (t) => {
  const { take, lost } = shares({ asker: 64, network: 256, all: 512 });
  for (let pod = 0; pod < 250; pod++)
    for (let nth = 0; nth < 64; nth++)
      for (const network of ["blue", "red"]) take(network, `h${pod}`);
  const before = lost.length;
  t.truthy(take("grey", "honest"));
  t.is(lost.length, before + 1);
});

test("a place that was given away is not given back by its former holder", (t) => {
  const { take, lost } = shares({ asker: 2, network: 2, all: 2 });
  const first = take("blue", "a", "first");
  take("blue", "a", "second");
  t.truthy(take("blue", "b"));
  t.deepEqual(lost, ["first"]);
  first?.[Symbol.dispose]();
  t.is(take("blue", "c"), undefined, "both places are still taken");
});

function query(name: string, id = 1): Query {
  const read = readQuery(encode({ type: "query", id, questions: [{ name, type: "A" }] }));
  if (read.kind !== "query") throw new Error(read.kind);
  return read.query;
}

function reply(name: string, ttl = 300, flags = 0): Uint8Array {
  const options = { udpPayloadSize: 1232, extendedRcode: 0, ednsVersion: 0, flags: 0 };
  return encode({
    type: "response",
    id: 1,
    flags,
    questions: [{ name, type: "A" }],
    answers: [
      { type: "CNAME", name, ttl, data: `www.${name}` },
      { type: "A", name: `www.${name}`, ttl, data: "192.0.2.1" },
    ],
    additionals: [{ type: "OPT", name: ".", ...options, flag_do: true, options: [] }],
  });
}

function stale(longestMs = 1000) {
  const clock = { ms: 0 };
  return { clock, one: new StaleAnswers({ now: () => 0, monotonic: () => clock.ms }, longestMs) };
}
const [web, db] = [asker("blue", "web"), asker("blue", "db")];

test("a stale answer has the new question's id and half a minute to live, and is its asker's alone", (t) => {
  const { one, clock } = stale();
  one.keep(web, query("a.example"), reply("a.example"));
  const found = decode(Buffer.from(one.find(web, query("a.example", 77)) ?? []));
  t.is(found.id, 77);
  t.deepEqual(
    found.answers?.map((each) => ("ttl" in each ? each.ttl : undefined)),
    [30, 30],
  );
  t.is(found.additionals?.length, 1, "flags of EDNS are no time to live");
  t.is(one.find(db, query("a.example")), undefined);
  t.is(one.find(asker("red", "web"), query("a.example")), undefined);
  t.is(one.find(web, query("b.example")), undefined);
  clock.ms = 1001;
  t.is(one.find(web, query("a.example")), undefined);
});

test("what may not be kept is not: refusals, no records, cut or damaged answers, and those that live for no time", (t) => {
  const { one } = stale();
  const good = reply("a.example");
  const cut = Uint8Array.from(good);
  cut[2] = (cut[2] ?? 0) | 0x02;
  const none = encode({ type: "response", id: 1, questions: [{ name: "a.example", type: "A" }] });
  for (const bad of [
    reply("a.example", 300, rcodes.nxDomain),
    reply("a.example", 0),
    cut,
    none,
    good.subarray(0, good.length - 1),
    new Uint8Array([...good, ...new Uint8Array(1300)]),
  ])
    one.keep(web, query("a.example"), bad);
  t.is(one.find(web, query("a.example")), undefined);
});

test("an asker has so many answers kept, and takes none of others", (t) => {
  const { one } = stale();
  one.keep(db, query("a.example"), reply("a.example"));
  for (let nth = 0; nth < 10_000; nth++)
    one.keep(web, query(`n${nth}.example`), reply(`n${nth}.example`));
  t.truthy(one.find(db, query("a.example")));
  t.is(one.find(web, query("n9967.example")), undefined);
  t.truthy(one.find(web, query("n9968.example")));
});

test("times to live are found in any records, and not where a name leads out of the message", (t) => {
  const good = reply("a.example");
  const { questionEnd } = query("a.example");
  t.is(timesIn(good, questionEnd)?.length, 2);
  for (let length = 0; length < good.length; length++)
    t.is(timesIn(good.subarray(0, length), questionEnd), undefined, `${length} bytes of it`);
});
