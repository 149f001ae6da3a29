/**
 * Tables of flows as large as guests can make them: podnetd reads them alongside everything else
 * that it does.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import test from "ava";
import { type Ip, ipToBytes } from "../../core/address.ts";
import { Conntrack } from "../../linux/conntrack/conntrack.ts";
import { NetlinkSocket } from "../../linux/netlink/netlink-socket.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import { encodeMessage } from "../../linux/rtnetlink/message.ts";
import { Writer } from "../../linux/rtnetlink/writer.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";

const IPCTNL_MSG_CT_NEW = 0x100;
/** Request, acknowledge, create, exclusive. */
const makeFlags = 1 | 4 | 0x400 | 0x200;
const many = 20_000;
const each = 5000;
const server = "2001:db8::1";

test.before(async () => {
  await ownNetns();
  unshareNetns();
  await ip("link set lo up");
  makeFlows();
});

const host = (n: number): string => `fd00:1::${(1 + Math.floor(n / each)).toString(16)}`;

/** Has the kernel track flows, each host's a few thousand, as if their packets had passed. */
function makeFlows(): void {
  const socket = new NetlinkSocket({ family: "netfilter" });
  using _socket = { [Symbol.dispose]: () => socket.close() };
  for (let n = 0; n < many; n++) {
    const port = 1024 + (n % each);
    const tuple = (from: string, to: string, sport: number, dport: number) => (nest: Writer) => {
      nest
        .nested(1, (at) => at.attribute(3, ipToBytes(from as Ip)).attribute(4, ipToBytes(to as Ip)))
        .nested(2, (at) => at.attributeU8(1, 17).attributeU16be(2, sport).attributeU16be(3, dport));
    };
    const payload = new Writer()
      .u8(10)
      .u8(0)
      .u16(0)
      .nested(1, tuple(host(n), server, port, 53))
      .nested(2, tuple(server, host(n), 53, port))
      // Status confirmed; for ten minutes. Both of big end.
      .attribute(3, Uint8Array.of(0, 0, 0, 8))
      .attribute(7, Uint8Array.of(0, 0, 2, 0x58))
      .finish();
    socket.send(
      encodeMessage({ type: IPCTNL_MSG_CT_NEW, flags: makeFlags, seq: n + 1, portId: 0, payload }),
    );
    const answer = socket.receive();
    if (typeof answer === "string") throw new Error(answer);
    const errno = new DataView(answer.buffer, answer.byteOffset).getInt32(16, true);
    if (errno !== 0) throw new Error(`Cannot make a flow: ${errno}`);
  }
}

/** How many turns others have of the thread while something is under way. */
async function othersDuring<T>(task: Promise<T>) {
  const over = new AbortController();
  let turns = 0;
  const counting = (async () => {
    for (; !over.signal.aborted; turns++) await nextTurn();
  })();
  const value = await task;
  over.abort();
  await counting;
  return { value, turns };
}

test.serial(
  "the flows of an address are found among many, and forgotten, while others have their turns",
  async (t) => {
    t.timeout(60_000);
    await using conntrack = new Conntrack();
    const ours = host(each) as Ip;
    const count = async (side: "original" | "reply", addresses: readonly Ip[]) =>
      (await conntrack.flows(side, addresses)).length;
    t.is(await count("reply", [server as Ip]), many);
    t.is(await count("original", [ours]), each);
    t.is(await count("reply", [ours]), 0);
    t.is(await count("original", ["fd00:1::ffff" as Ip, host(0) as Ip, ours]), 2 * each);
    const found = await conntrack.flows("original", [ours]);
    const { turns } = await othersDuring(conntrack.forget(found));
    t.true(turns > 5, `forgotten in ${turns} turns`);
    t.is(await count("original", [ours]), 0);
    t.is(await count("original", [host(0) as Ip]), each);
  },
);

test.serial("a table is read in turns", async (t) => {
  t.timeout(60_000);
  await using conntrack = new Conntrack();
  const { value, turns } = await othersDuring(conntrack.flows("reply", [server as Ip]));
  t.true(value.length > each);
  // All at once it is a single turn.
  t.true(turns > 5, `read in ${turns} turns`);
});
