import { isIp, parseIp } from "../../../core/address.ts";
import { echoRequest, internetChecksum, parseIcmp } from "../../../linux/sockets/icmp.ts";
import { choosing, chosen, type Target } from "../engine/target.ts";

const sender = parseIp("2001:db8::9");

const read =
  (family: 4 | 6) =>
  (bytes: Uint8Array): void => {
    if (parseIcmp(6, bytes, undefined) !== undefined) throw new Error("Of no packet");
    const message = parseIcmp(family, bytes, family === 6 ? sender : undefined);
    if (message === undefined) return;
    const { id, sequence } = message;
    if (id > 0xffff || sequence > 0xffff) throw new Error(`Request ${id}, ${sequence}`);
    const ip = message.kind === "reply" ? message.from : message.to;
    if (!isIp(ip)) throw new Error(`An address ${ip}`);
    if (message.kind === "unreachable" && !isIp(message.from)) throw new Error("Without a sender");
    if (message.kind === "reply" && message.payload.length > bytes.length - 8)
      throw new Error("More than was received");
    if (message.kind === "too-big" && message.mtu > 0xffff_ffff) throw new Error("An MTU");
  };

/** What is sent adds up, so that what has been sent is known again from what comes back. */
function sent(bytes: Uint8Array): void {
  const request = echoRequest(4, { id: 7, sequence: bytes.length & 0xffff }, bytes);
  if (internetChecksum(request) !== 0) throw new Error("Its checksum is wrong");
}

/**
 * An IPv4 packet that carries this; `more` is of what comes after the version and the header's
 * length.
 */
function packet4(payload: readonly number[], { first = 0x45, protocol = 1 } = {}): Uint8Array {
  const header = new Uint8Array((first & 15) * 4);
  header[0] = first;
  header[9] = protocol;
  header.set([192, 0, 2, 9, 192, 0, 2, 1], 12);
  return Uint8Array.from([...header, ...payload]);
}

function packet6(payload: readonly number[], next = 58): Uint8Array {
  const header = new Uint8Array(40);
  header[0] = 0x60;
  header[6] = next;
  header.set([0x20, 1, 0xd, 0xb8], 8);
  header.set([0x20, 1, 0xd, 0xb8], 24);
  return Uint8Array.from([...header, ...payload]);
}

const request4 = [8, 0, 0, 0, 1, 2, 3, 4, 9, 9];
const request6 = [128, 0, 0, 0, 1, 2, 3, 4, 9, 9];

export const icmp: Target = {
  name: "icmp",
  files: ["linux/sockets/icmp.ts"],
  seeds: [
    ...[
      packet4([0, 0, 0, 0, 1, 2, 3, 4, 5, 6]),
      packet4([0, 0, 0, 0, 1, 2, 3, 4], { first: 0x46 }),
      packet4([0, 0, 0]),
      packet4([0, 1, 0, 0, 1, 2, 3, 4]),
      packet4([11, 0, 0, 0, 1, 2, 3, 4]),
      packet4([3, 4, 0, 0, 0, 0, 5, 20, ...packet4(request4)]),
      packet4([3, 1, 0, 0, 0, 0, 5, 20, ...packet4(request4)]),
      packet4([3, 4, 0, 0, 0, 0, 5, 20, ...packet4(request4, { protocol: 17 })]),
      packet4([3, 4, 0, 0, 0, 0, 5, 20, ...packet4([8, 0, 0])]),
      packet4([3, 4, 0, 0, 0, 0, 5, 20, ...packet4([0, 0, 0, 0, 1, 2, 3, 4])]),
      packet4([3, 4, 0, 0, 0, 0, 5, 20, 0x45]),
      packet4(request4, { first: 0x65 }),
      Uint8Array.of(0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0),
      new Uint8Array(0),
    ].map((bytes) => chosen(0, bytes)),
    ...[
      Uint8Array.of(129, 0, 0, 0, 1, 2, 3, 4, 5, 6),
      Uint8Array.of(2, 0, 0, 0, 0, 0, 5, 20, ...packet6(request6)),
      Uint8Array.of(2, 0, 0, 0, 0, 0, 5, 20, ...packet6(request6, 17)),
      Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0, ...packet6(request6)),
    ].map((bytes) => chosen(1, bytes)),
    chosen(2, new Uint8Array(0)),
    chosen(2, new Uint8Array(5).fill(255)),
    chosen(2, new Uint8Array(600).fill(255)),
  ],
  longest: 1500,
  run: choosing([read(4), read(6), sent]),
};
