import test from "ava";
import { type Ip, ipToBytes } from "../../../core/address.ts";
import { type Flow, nameFlow, parseFlow } from "../../../linux/conntrack/flow.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { cameBy, endWithdrawn } from "../../../network/bridge/flows.ts";
import type { PublishedDesired } from "../../../network/model/desired.ts";

/** A direction as the kernel sends it: addresses and ports, source first. */
const tuple = (source: string, destination: string, from: number, to: number): Uint8Array =>
  new Writer()
    .nested(1, (ip) =>
      ip.attribute(1, ipToBytes(source as Ip)).attribute(2, ipToBytes(destination as Ip)),
    )
    .nested(2, (proto) => proto.attributeU8(1, 17).attributeU16be(2, from).attributeU16be(3, to))
    .finish();
const genmsg = (): Writer => new Writer().u8(2).u8(0).u16(0);
const original = tuple("192.0.2.20", "192.0.2.1", 40_000, 8081);
const id = Uint8Array.of(1, 2, 3, 4);
const message = genmsg()
  .nested(1, (nest) => nest.raw(original))
  .nested(2, (nest) => nest.raw(tuple("192.168.123.2", "192.0.2.20", 81, 40_000)))
  .attribute(12, id)
  .finish();

const flow = (): Flow => parseFlow(message) as Flow;

test("a flow is read, and named by what the kernel called it", (t) => {
  t.like(flow(), {
    protocol: 17,
    original: {
      source: "192.0.2.20",
      destination: "192.0.2.1",
      sourcePort: 40000,
      destinationPort: 8081,
    },
    reply: {
      source: "192.168.123.2",
      destination: "192.0.2.20",
      sourcePort: 81,
      destinationPort: 40000,
    },
  });
  const named = genmsg().nested(1, (nest) => nest.raw(original));
  t.deepEqual(nameFlow(flow()), named.attribute(12, id).finish());
});

test("what is about no addresses is no flow", (t) => {
  t.is(parseFlow(Uint8Array.of(2, 0, 0, 0)), undefined);
  t.throws(() => parseFlow(Uint8Array.of(2, 0)), { code: "NETLINK_FAILED" });
});

const entry: PublishedDesired = {
  protocol: "udp",
  hostPort: 8080,
  podIp: "192.168.123.2" as Ip,
  podPort: 80,
  count: 3,
  bridge: "hyper0" as never,
  subnet: "192.168.123.0/24" as never,
};

test("a flow came by a published port when protocol, addresses and both ports say so", (t) => {
  t.true(cameBy(flow(), entry));
  t.true(cameBy(flow(), { ...entry, hostIp: "192.0.2.1" as Ip }));
  const others: readonly Partial<PublishedDesired>[] = [
    { protocol: "tcp" },
    { hostIp: "192.0.2.2" as Ip },
    { hostPort: 8082 },
    { hostPort: 8078 },
    { count: 1 },
    { podPort: 81 },
    { podIp: "192.168.123.3" as Ip },
  ];
  for (const other of others)
    t.false(cameBy(flow(), { ...entry, ...other }), JSON.stringify(other));
  const routed = { ...flow().original, destination: "192.168.123.2" as Ip, destinationPort: 81 };
  t.false(cameBy({ ...flow(), original: routed }, { ...entry, hostPort: 81, podPort: 81 }));
});

test("addresses are looked at together and once, for what is not published again", async (t) => {
  const pod = { kind: "pod", key: "abcdefghijkl", ports: [] } as const;
  const asked: string[] = [];
  const forgotten: number[] = [];
  const conntrack = {
    flows: (side: string, addresses: readonly Ip[]) => {
      asked.push(`${side} ${addresses.join(" ")}`.trim());
      return Promise.resolve([flow()]);
    },
    forget: (flows: readonly Flow[]) => {
      forgotten.push(flows.length);
      return Promise.resolve();
    },
    close: () => Promise.resolve(),
  };
  const six = { ...entry, podIp: "fd00:123::2" as Ip };
  const withdrawn = [entry, six, { ...entry, hostPort: 9000 }];
  await endWithdrawn({ ...pod, published: [], withdrawn }, conntrack);
  t.deepEqual(asked, ["reply 192.168.123.2 fd00:123::2"]);
  t.deepEqual(forgotten, [1]);
  await endWithdrawn({ ...pod, published: withdrawn, withdrawn }, conntrack);
  t.is(asked[1], "reply", "nothing to look for");
});
