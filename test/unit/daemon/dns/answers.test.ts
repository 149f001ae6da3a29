import test from "ava";
import { type DecodedPacket, decode, encode, type Packet } from "dns-packet";
import { type Cidr, type Ip, parseIp } from "../../../../core/address.ts";
import type { NetworkName, PodId, PodName } from "../../../../core/names.ts";
import { Resolver, type ResolverCounts } from "../../../../daemon/dns/resolver.ts";
import { Turns } from "../../../../daemon/dns/turns.ts";
import type { Query } from "../../../../daemon/dns/query.ts";
import { otherPods } from "../../../../daemon/overlays/records/other-pods.ts";
import type { OverlayView } from "../../../../daemon/overlays/view.ts";
import type { OtherHosts } from "../../../../daemon/dns/zone.ts";

const web = "webwebwebweb" as PodId;

/** Addresses of pods, by network. */
const pods: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  blue: {
    web: ["10.30.0.2", "fd00:30::2"],
    four: ["10.30.0.4"],
    both: ["10.30.0.5"],
    public: ["203.0.113.66"],
  },
  red: { both: ["10.40.0.5", "fd00:40::5"], there: ["10.40.0.7"] },
  grey: { both: ["10.50.0.5"], hidden: ["10.50.0.9"] },
};
const pools = [
  "10.30.0.0/24",
  "fd00:30::/64",
  "fd00:40::/64",
  "10.31.0.0/16",
  "10.40.0.0/24",
  "10.50.0.0/24",
  "203.0.113.64/26",
] as Cidr[];

/**
 * A resolver of network `blue`, asked by a pod that is on these; what it hands on is answered as
 * given.
 */
function resolver(
  upstream: (query: Query) => Uint8Array | undefined = () => undefined,
  networks: readonly string[] = ["blue"],
  others?: OtherHosts,
) {
  const counts: ResolverCounts = { queries: 0, forwarded: 0, refused: 0, timeouts: 0, stale: 0 };
  const played = { now: 0, forwarded: [] as string[] };
  const one = new Resolver({
    network: "blue" as NetworkName,
    zoneOf: (asker) => ({
      domain: "podnet",
      networks: () => (asker === web ? (networks as readonly NetworkName[]) : []),
      pools: () => pools,
      addressesOf: (network, pod) => pods[network]?.[pod] as readonly Ip[] | undefined,
      serviceAddresses: (network, service) =>
        network === "blue" && service === "db" ? [parseIp("10.73.0.9")] : undefined,
      nameAt: (network, ip) =>
        Object.keys(pods[network] ?? {}).find((pod) => pods[network]?.[pod]?.includes(ip)),
      others,
    }),
    turns: new Turns({ now: () => 0, monotonic: () => played.now }),
    forwarder: {
      forward: async (query, way) => {
        played.forwarded.push(`${way} ${query.name}`);
        return upstream(query);
      },
    },
    counts,
    askerAt: (ip) => (ip === parseIp("10.30.0.2") ? web : undefined),
    upstreams: () => [],
  });
  return { counts, played, one };
}

const question = (name: string, type = "A", more: Packet = {}): Buffer =>
  encode({
    type: "query",
    id: 7,
    flags: 0x0100,
    questions: [{ name, type: type as "A" }],
    ...more,
  });

async function ask(
  name: string,
  type = "A",
  { one } = resolver(),
): Promise<DecodedPacket & { readonly rcode?: string }> {
  const answer = await one.answer(question(name, type), "10.30.0.2", "udp");
  if (answer === undefined) throw new Error("No answer");
  return decode(Buffer.from(answer));
}

/** What an answer says, in short. */
async function said(name: string, type = "A", other = resolver()): Promise<string> {
  const packet = await ask(name, type, other);
  const { rcode, answers = [], authorities = [], flag_aa: authoritative } = packet;
  const data = answers.map((each) => ("data" in each ? JSON.stringify(each.data) : each.type));
  return [
    rcode,
    ...(authoritative ? [] : ["NOT AUTHORITATIVE"]),
    ...data,
    ...authorities.map((each) => each.type),
  ].join(" ");
}

test("a service has a name on its network, which a network of that name takes", async (t) => {
  t.is(await said("db.service.podnet"), 'NOERROR "10.73.0.9"');
  t.is(await said("db.service.podnet", "AAAA"), "NOERROR SOA");
  t.is(await said("none.service.podnet"), "NXDOMAIN SOA");
  // There are names below it.
  t.is(await said("service.podnet"), "NOERROR SOA");
  t.is(await said("db.podnet"), "NXDOMAIN SOA", "not as a pod");
  t.is(await said("db.service.podnet", "A", resolver(undefined, ["red"])), "NXDOMAIN SOA");
  const both = resolver(undefined, ["blue", "service"]);
  t.is(await said("db.service.podnet", "A", both), "NXDOMAIN SOA");
});

test("what is asked of pods is answered as it is, or is not", async (t) => {
  const wanted: readonly (readonly [name: string, type: string, answer: string])[] = [
    ["web.podnet", "A", 'NOERROR "10.30.0.2"'],
    ["WEB.PodNet", "AAAA", 'NOERROR "fd00:30::2"'],
    ["web.podnet", "ANY", 'NOERROR "10.30.0.2" "fd00:30::2"'],
    ["web.blue.podnet", "A", 'NOERROR "10.30.0.2"'],
    ["four.podnet", "AAAA", "NOERROR SOA"],
    ["web.podnet", "TXT", "NOERROR SOA"],
    ["podnet", "A", "NOERROR SOA"],
    ["podnet", "NS", "NOERROR SOA"],
    ["blue.podnet", "A", "NOERROR SOA"],
    ["missing.podnet", "A", "NXDOMAIN SOA"],
    ["web", "A", 'NOERROR "10.30.0.2"'],
    ["Web.", "AAAA", 'NOERROR "fd00:30::2"'],
    ["missing", "A", "NXDOMAIN SOA"],
    ["localdomain", "AAAA", "NXDOMAIN SOA"],
    ...["TXT", "MX", "SRV", "ANY", "HTTPS"].map(
      (type) => ["missing", type, "NXDOMAIN SOA"] as const,
    ),
    ["web", "TXT", "NOERROR SOA"],
    ["com", "NS", "SERVFAIL NOT AUTHORITATIVE"],
    ["web.green.podnet", "A", "NXDOMAIN SOA"],
    ["a.web.blue.podnet", "A", "NXDOMAIN SOA"],
    ["2.0.30.10.in-addr.arpa", "PTR", 'NOERROR "web.podnet"'],
    ["2.0.30.10.IN-ADDR.arpa", "A", "NOERROR SOA"],
    ["9.0.30.10.in-addr.arpa", "PTR", "NXDOMAIN SOA"],
    ["9.9.31.10.in-addr.arpa", "PTR", "NXDOMAIN SOA"],
    ["0.30.10.in-addr.arpa", "PTR", "NOERROR SOA"],
    ["66.113.0.203.in-addr.arpa", "PTR", 'NOERROR "public.podnet"'],
  ];
  for (const [name, type, answer] of wanted)
    t.is(await said(name, type), answer, `${name} ${type}`);
  const six = "fd000030000000000000000000000002".split("").toReversed().join(".");
  t.is(await said(`${six}.ip6.arpa`, "PTR"), 'NOERROR "web.podnet"');
  const missing = "fd000030000000000000000000000009".split("").toReversed().join(".");
  t.is(await said(`${missing}.ip6.arpa`, "PTR"), "NXDOMAIN SOA");
});

test("a pod is notified of all the networks it is on, that by which it asks first, and of no other", async (t) => {
  const six = "fd000040000000000000000000000005".split("").toReversed().join(".");
  const wanted: readonly (readonly [name: string, type: string, alone: string, two: string])[] = [
    ["both", "A", 'NOERROR "10.30.0.5"', 'NOERROR "10.30.0.5" "10.40.0.5"'],
    ["both.podnet", "AAAA", "NOERROR SOA", 'NOERROR "fd00:40::5"'],
    ["both.red.podnet", "A", "NXDOMAIN SOA", 'NOERROR "10.40.0.5"'],
    ["both.blue.podnet", "A", 'NOERROR "10.30.0.5"', 'NOERROR "10.30.0.5"'],
    ["there", "A", "NXDOMAIN SOA", 'NOERROR "10.40.0.7"'],
    ["red.podnet", "A", "NXDOMAIN SOA", "NOERROR SOA"],
    ["5.0.40.10.in-addr.arpa", "PTR", "NXDOMAIN SOA", 'NOERROR "both.podnet"'],
    [`${six}.ip6.arpa`, "PTR", "NXDOMAIN SOA", 'NOERROR "both.podnet"'],
    ["hidden", "A", "NXDOMAIN SOA", "NXDOMAIN SOA"],
    ["hidden.grey.podnet", "A", "NXDOMAIN SOA", "NXDOMAIN SOA"],
    ["grey.podnet", "A", "NXDOMAIN SOA", "NXDOMAIN SOA"],
    ["9.0.50.10.in-addr.arpa", "PTR", "NXDOMAIN SOA", "NXDOMAIN SOA"],
  ];
  for (const [name, type, alone, two] of wanted) {
    t.is(await said(name, type), alone, `${name} ${type} on one`);
    t.is(await said(name, type, resolver(undefined, ["blue", "red"])), two, `${name} ${type}`);
  }
  const other = resolver(undefined, ["red", "blue"]);
  t.is(await said("both", "A", other), 'NOERROR "10.40.0.5" "10.30.0.5"');
});

test("a name is echoed as it was asked for, with the flags of an answer that is one's own", async (t) => {
  const { id, questions, answers, flag_qr, flag_aa, flag_ra, flag_rd } = await ask("wEb.podnet");
  t.is(id, 7);
  t.is(questions?.[0]?.name, "wEb.podnet");
  t.is(answers?.[0]?.name, "wEb.podnet");
  t.deepEqual([flag_qr, flag_aa, flag_ra, flag_rd], [true, true, true, true]);
});

test("everything else is handed on as it came, but nothing of private addresses", async (t) => {
  const seen: Uint8Array[] = [];
  const other = resolver(({ bytes }) => {
    seen.push(bytes);
    const { id = 0, questions = [] } = decode(Buffer.from(bytes));
    return encode({
      type: "response",
      id,
      questions,
      answers: [{ type: "A", name: "a.example", data: "192.0.2.1" }],
    });
  });
  const names = [
    "a.example",
    "podnet.example",
    "notpodnet.example",
    "1.2.0.192.in-addr.arpa",
    "30.10.in-addr.arpa",
    // Of a pool, but not a private one, and no pod's here.
    "67.113.0.203.in-addr.arpa",
  ];
  for (const name of names) t.is((await ask(name, "A", other)).answers?.length, 1, name);
  // Of a whole domain, or of all of them: what asks for that wants keys.
  for (const name of ["com", "."]) t.is((await ask(name, "DS", other)).answers?.length, 1, name);
  t.deepEqual(
    other.played.forwarded,
    [...names, "com", "."].map((name) => `udp ${name}`),
  );
  t.deepEqual(Buffer.from(seen[0] ?? []), question("a.example"));
  t.is(other.counts.forwarded, names.length + 2);
  for (const name of ["9.0.30.10.in-addr.arpa", "missing.podnet", "web.podnet"])
    await ask(name, "PTR", other);
  t.is(other.counts.forwarded, names.length + 2);
});

test("no answer: that is reported, and counted", async (t) => {
  const other = resolver();
  t.is((await ask("a.example", "A", other)).rcode, "SERVFAIL");
  t.is(other.counts.timeouts, 1);
});

test("who holds no address of the network is not answered, by datagram or by connection", async (t) => {
  const { one, counts } = resolver();
  for (const from of ["10.30.0.3", "192.0.2.20", "fe80::1%hyper0", "nonsense", undefined]) {
    t.is(await one.answer(question("web.podnet"), from, "udp"), undefined, from);
    t.is(
      one.connection(from, () => {}),
      undefined,
      from,
    );
  }
  t.is(counts.refused, 10);
  t.truthy(await one.answer(question("web.podnet"), "10.30.0.2", "udp"));
  t.truthy(one.connection("10.30.0.2", () => {}));
});

test("an answer that is longer than was asked for says so, and comes whole by TCP", async (t) => {
  const long = ({ bytes }: Query): Uint8Array => {
    const { id = 0, questions = [] } = decode(Buffer.from(bytes));
    const data = "x".repeat(200);
    const answers = Array.from(
      { length: 40 },
      () => ({ type: "TXT", name: "a.example", data }) as const,
    );
    return encode({ type: "response", id, questions, answers });
  };
  const { one } = resolver(long);
  const opt = (udpPayloadSize: number): Packet => ({
    additionals: [
      {
        type: "OPT",
        name: ".",
        udpPayloadSize,
        extendedRcode: 0,
        ednsVersion: 0,
        flags: 0,
        flag_do: false,
        options: [],
      },
    ],
  });
  for (const more of [{}, opt(1232), opt(65_535)]) {
    const asked = question("a.example", "TXT", more);
    const short = await one.answer(asked, "10.30.0.2", "udp");
    const { flag_tc, answers, questions } = decode(Buffer.from(short ?? []));
    t.true(flag_tc);
    t.is(answers?.length, 0);
    t.is(questions?.[0]?.name, "a.example");
    const whole = await one.answer(asked, "10.30.0.2", "tcp");
    t.is(decode(Buffer.from(whole ?? [])).answers?.length, 40);
  }
});

test("a guest that speaks EDNS is answered in kind", async (t) => {
  const { one } = resolver();
  const asked = question("web.podnet", "A", {
    additionals: [
      {
        type: "OPT",
        name: ".",
        udpPayloadSize: 4096,
        extendedRcode: 0,
        ednsVersion: 0,
        flags: 0,
        flag_do: false,
        options: [],
      },
    ],
  });
  const answer = decode(Buffer.from((await one.answer(asked, "10.30.0.2", "udp")) ?? []));
  t.is(answer.additionals?.[0]?.type, "OPT");
  t.is((await ask("web.podnet")).additionals?.length, 0);
});

test("what is no query is not answered, and what makes no sense is answered so", async (t) => {
  const { one, counts } = resolver();
  const reply = async (bytes: Uint8Array): Promise<number | undefined> => {
    const answer = await one.answer(bytes, "10.30.0.2", "udp");
    if (answer === undefined) return undefined;
    t.deepEqual([...answer.subarray(0, 2)], [...bytes.subarray(0, 2)], "its id");
    t.true(((answer[2] ?? 0) & 0x80) !== 0, "an answer");
    return (answer[3] ?? 0) & 0xf;
  };
  const changed = (at: number, ...values: readonly number[]): Uint8Array => {
    const bytes = Uint8Array.from(question("web.podnet"));
    bytes.set(values, at);
    return bytes;
  };
  t.is(await reply(new Uint8Array(11)), undefined);
  t.is(await reply(changed(2, 0x81)), undefined, "an answer is not answered");
  t.is(await reply(changed(2, 0x29)), 4, "NOTIFY and UPDATE are not for here");
  t.is(await reply(changed(4, 0, 2)), 1, "two questions");
  t.is(await reply(changed(4, 0xff, 0xff)), 1, "more questions than there is room for");
  t.is(await reply(changed(10, 0xff, 0xff)), 1);
  t.is(await reply(changed(12, 0xc0, 0x0c)), 1, "a name that is itself");
  t.is(await reply(question("web.podnet").subarray(0, 20)), 1, "a name without an end");
  t.is(await reply(new Uint8Array([...question("web.podnet"), ...new Uint8Array(4096)])), 1);
  t.is(counts.queries, 0);
  for (const type of ["AXFR", "IXFR"]) t.is(await reply(question("podnet", type)), 5);
  t.is(await reply(changed(question("web.podnet").length - 1, 3)), 5, "of CHAOS");
  t.is(await reply(question("web.podnet")), 0);
});

/** Nothing but that the question is to be asked by TCP. */
function comesByTcp(answer: Uint8Array | undefined): boolean {
  const { flag_tc, rcode, questions, answers }: DecodedPacket & { rcode?: string } = decode(
    Buffer.from(answer ?? []),
  );
  return flag_tc && rcode === "NOERROR" && questions?.length === 1 && answers?.length === 0;
}

test("one pod asks only so much: in a second, at once, and by connections", async (t) => {
  let answer = (): void => {};
  const waiting = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const counts: ResolverCounts = { queries: 0, forwarded: 0, refused: 0, timeouts: 0, stale: 0 };
  const clock = { ms: 0 };
  const one = new Resolver({
    network: "blue" as NetworkName,
    zoneOf: () => ({
      domain: "podnet",
      networks: () => [],
      pools: () => [],
      addressesOf: () => undefined,
      nameAt: () => undefined,
    }),
    turns: new Turns({ now: () => 0, monotonic: () => clock.ms }),
    forwarder: { forward: () => waiting.then(() => undefined) },
    counts,
    askerAt: (ip) => ip as string as PodId,
    upstreams: () => [],
  });
  const send = (from: string) => one.answer(question("a.example"), from, "udp");
  const local = (from: string) => one.answer(question("missing.podnet"), from, "udp");
  const first = Array.from({ length: 64 }, () => send("10.0.0.2"));
  const beyond = await send("10.0.0.2");
  t.true(comesByTcp(beyond), "one more than 64 has to ask by TCP at once");
  const byTcp = Array.from({ length: 32 }, () =>
    one.answer(question("a.example"), "10.0.0.2", "tcp"),
  );
  const refused = await one.answer(question("a.example"), "10.0.0.2", "tcp");
  t.is((refused?.[3] ?? 0) & 0xf, 2, "by TCP it has 32 of its own, and has to try again");
  t.is(counts.refused, 2);
  const others = Array.from({ length: 64 }, () => send("10.0.0.3"));
  t.is(counts.refused, 2, "another pod has its own");
  answer();
  await Promise.all([...first, ...byTcp, ...others]);
  t.is(counts.forwarded, 160);

  const places = Array.from({ length: 9 }, () => one.connection("10.0.0.2", () => {}));
  t.deepEqual(
    places.map((place) => place !== undefined),
    [...Array.from({ length: 8 }, () => true), false],
  );
  places[0]?.[Symbol.dispose]();
  places[0]?.[Symbol.dispose]();
  t.truthy(one.connection("10.0.0.2", () => {}));
  t.is(
    one.connection("10.0.0.2", () => {}),
    undefined,
  );

  const answered = await Promise.all(Array.from({ length: 1100 }, () => local("10.0.0.4")));
  t.is(answered.filter((each) => !comesByTcp(each)).length, 1000);
  clock.ms = 1000;
  const later = await Promise.all(Array.from({ length: 1100 }, () => local("10.0.0.4")));
  t.is(later.filter((each) => !comesByTcp(each)).length, 500);
});

test("a pod of another host is answered for where none of this host's has the name, on their overlay alone", async (t) => {
  const elsewhere: Readonly<Record<string, readonly string[]>> = {
    far: ["10.77.9.2", "192.0.2.9"],
    web: ["10.77.9.3"],
    both: ["10.77.9.5"],
    // In what this host has of the overlay, and outside of it: no other host's.
    liar: ["10.77.0.7", "203.0.113.70"],
  };
  const overlay = {
    name: "flannel",
    network: "blue",
    networks: ["10.77.0.0/16"],
    subnets: ["10.77.0.0/24"],
  } as unknown as OverlayView;
  const others = otherPods(
    { list: () => [overlay] },
    {
      addressesOf: (name, pod) =>
        name === "flannel" ? (elsewhere[pod] as readonly Ip[] | undefined) : undefined,
      nameAt: (name, ip) =>
        name === "flannel"
          ? (Object.keys(elsewhere).find((pod) => elsewhere[pod]?.includes(ip)) as PodName)
          : undefined,
    },
  );
  const onBlue = resolver(undefined, ["blue"], others);
  const onBoth = resolver(undefined, ["blue", "red"], others);
  const onRed = resolver(undefined, ["red"], others);
  for (const [name, type, other, answer] of [
    ["far.podnet", "A", onBlue, 'NOERROR "10.77.9.2"'],
    ["Far", "A", onBlue, 'NOERROR "10.77.9.2"'],
    ["far.blue.podnet", "A", onBlue, 'NOERROR "10.77.9.2"'],
    ["far.podnet", "AAAA", onBlue, "NOERROR SOA"],
    ["far.podnet", "A", onRed, "NXDOMAIN SOA"],
    ["far.red.podnet", "A", onBoth, "NXDOMAIN SOA"],
    // Names of this host's own pods are theirs, on whichever network.
    ["web.podnet", "A", onBlue, 'NOERROR "10.30.0.2"'],
    ["there.podnet", "A", onBoth, 'NOERROR "10.40.0.7"'],
    ["both.red.podnet", "A", onBoth, 'NOERROR "10.40.0.5"'],
    ["liar.podnet", "A", onBlue, "NXDOMAIN SOA"],
    ["2.9.77.10.in-addr.arpa", "PTR", onBlue, 'NOERROR "far.podnet"'],
    ["2.9.77.10.in-addr.arpa", "PTR", onRed, "NXDOMAIN SOA"],
    ["2.0.30.10.in-addr.arpa", "PTR", onBlue, 'NOERROR "web.podnet"'],
    ["7.0.77.10.in-addr.arpa", "PTR", onBlue, "NXDOMAIN SOA"],
    ["9.9.77.10.in-addr.arpa", "PTR", onBlue, "NXDOMAIN SOA"],
  ] as const)
    t.is(await said(name, type, other), answer, `${name} ${type}`);
  t.deepEqual(onBlue.played.forwarded, []);
});
