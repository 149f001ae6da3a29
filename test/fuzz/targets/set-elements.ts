import { deepStrictEqual, ok } from "node:assert";
import { encodeMessage, NLMSG_ERROR } from "../../../linux/rtnetlink/message.ts";
import { Writer } from "../../../linux/rtnetlink/writer.ts";
import { type ElementChange, readAnswer } from "../../../linux/nftables/set-elements.ts";
import { type Target, valueOf } from "../engine/target.ts";

const begin = 7;
const set = { name: "s", types: ["inet_service"] };
const changes: readonly ElementChange[] = [80, 81].map((port) => ({
  verb: "add",
  set,
  key: `${port}`,
}));

/** NLMSG_ERROR: an error number, and the header of the message that it is about. */
const answer = (place: number, errno: number, type = NLMSG_ERROR): Uint8Array =>
  encodeMessage({
    type,
    flags: 0x100,
    seq: begin + place,
    portId: 1,
    payload: new Writer().i32(-errno).u32(20).u16(1).u16(5).u32(begin).u32(0).finish(),
  });

/** The kernel's answers to a transaction that changes elements. */
export const setElements: Target = {
  name: "set-elements",
  files: ["linux/nftables/set-elements.ts"],
  only: ["readAnswer"],
  seeds: [
    answer(2, 0),
    answer(2, 17),
    Buffer.concat([answer(1, 2), answer(2, 0)]),
    answer(0, 12),
    answer(3, 1),
    answer(9, 1),
    answer(2, 0, 3),
    new Uint8Array(0),
  ],
  run(bytes) {
    const read = valueOf(["NETLINK_FAILED"], () => readAnswer({ begin, changes }, [bytes]));
    for (const { ack, change } of read ?? []) {
      ok(ack.errno > 0);
      ok(change === undefined || changes.includes(change));
    }
    // Two datagrams say what one of them says.
    const twice = valueOf(["NETLINK_FAILED"], () => readAnswer({ begin, changes }, [bytes, bytes]));
    deepStrictEqual(twice?.length, read && 2 * read.length);
  },
};
