import { deepStrictEqual, ok } from "node:assert";
import { parseControl, withTag } from "../../../linux/packets/packet-control.ts";
import type { Random } from "../engine/random.ts";
import { type LengthField, type Target, valueOf } from "../engine/target.ts";

/** A control message; `length` is what it says of its data. */
function message(level: number, type: number, data: Uint8Array, length = data.length): Buffer {
  const bytes = Buffer.alloc((16 + data.length + 7) & ~7);
  bytes.writeBigUInt64LE(BigInt(16 + length), 0);
  bytes.writeInt32LE(level, 8);
  bytes.writeInt32LE(type, 12);
  bytes.set(data, 16);
  return bytes;
}

const time = Buffer.alloc(16);
time.writeBigInt64LE(1_700_000_000n, 0);
time.writeBigInt64LE(999_999_999n, 8);
function auxiliary(status: number): Buffer {
  const data = Buffer.alloc(20);
  data.writeUInt32LE(status, 0);
  data.writeUInt16LE(10, 16);
  data.writeUInt16LE(0x88a8, 18);
  return data;
}

const generate = (random: Random): Uint8Array =>
  Buffer.concat(
    Array.from({ length: random.below(5) }, () => {
      const level = random.pick([1, 263, random.below(300)]);
      const type = random.pick([35, 8, random.below(70)]);
      const data = random.pick([
        time,
        auxiliary(random.below(128)),
        random.bytes(random.below(30)),
      ]);
      return message(level, type, data, random.once(5) ? random.below(64) : data.length);
    }),
  );

function lengths(bytes: Uint8Array): LengthField[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const fields: LengthField[] = [];
  for (let at = 0; at + 16 <= bytes.length && fields.length < 20; ) {
    fields.push({ at, bytes: 4, littleEndian: true });
    at += Math.max(16, Math.min((view.getUint32(at, true) + 7) & ~7, bytes.length));
  }
  return fields;
}

const frame = Uint8Array.from({ length: 60 }, (_, i) => i);

const control: Target = {
  name: "packet-control",
  files: ["linux/packets/packet-control.ts"],
  seeds: [
    message(1, 35, time),
    Buffer.concat([message(1, 35, time), message(263, 8, auxiliary(0x51))]),
    message(263, 8, auxiliary(0x11)),
    message(263, 8, auxiliary(1)),
    message(1, 35, time.subarray(0, 8)),
  ],
  generate,
  lengths,
  run: (bytes) => {
    const said = valueOf([], () => parseControl(bytes));
    if (said === undefined) throw new Error("It refuses nothing");
    ok(said.timeNs === undefined || said.timeNs >= 0n);
    for (const [kept, length] of [
      [frame, 60],
      [frame, 1500],
      [frame.subarray(0, 5), 5],
    ] as const) {
      const whole = withTag(kept, length, said);
      const tagged: boolean = said.tag !== undefined && kept.length >= 12;
      deepStrictEqual(whole.length, length + (tagged ? 4 : 0));
      ok(whole.bytes.length <= whole.length);
      deepStrictEqual(whole.bytes.subarray(0, 5), kept.subarray(0, 5));
      ok(kept.length === length || whole.bytes.length === kept.length, "cut where it was to be");
    }
  },
};

export const packets: readonly Target[] = [control];
