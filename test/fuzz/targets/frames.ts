import type { Assembled } from "../../../guest-init/protocol/assembler.ts";
import { readU32, readU64 } from "../../../guest-init/protocol/bytes.ts";
import {
  CtlDecoder,
  type CtlItem,
  encodeCtlFrame,
} from "../../../guest-init/protocol/ctl-frame.ts";
import {
  TtyDecoder,
  type TtyItem,
  encodeTtyFrame,
} from "../../../guest-init/protocol/tty-frame.ts";
import { digest, Random } from "../engine/random.ts";
import type { LengthField, Target } from "../engine/target.ts";

/**
 * Largest frame the decoders under test take, bytes: above what is reserved on a peer's word alone
 * (16 KiB).
 */
const limit = 20_000;

interface Format {
  readonly header: number;
  readonly lengthAt: number;
  /** Most bytes of one body that are reserved. */
  readonly most: number;
  readonly decoder: () => {
    push(bytes: Uint8Array): (CtlItem | TtyItem)[];
    reserved: number;
    wanted: number;
    pending: boolean;
  };
  readonly encode: (id: number, body: Uint8Array) => Uint8Array;
  readonly id: (header: Uint8Array) => bigint;
}

const ctl: Format = {
  header: 8,
  lengthAt: 4,
  decoder: () => new CtlDecoder(limit),
  most: limit,
  encode: (id, body) => encodeCtlFrame(id, body),
  id: (header) => BigInt(readU32(header, 0)),
};
const tty: Format = {
  header: 12,
  lengthAt: 8,
  // As podnetd reads it, which is the reader of a guest.
  decoder: () => new TtyDecoder(limit, { shares: true }),
  // Memory that is used again has one size.
  most: 32 * 1024,
  encode: (id, body) => encodeTtyFrame(BigInt(id), body),
  id: (header) => readU64(header, 0),
};

const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");

/** The rules written once more, over the whole stream at once. */
function reference({ header, lengthAt, id }: Format, bytes: Uint8Array): string[] {
  const found: string[] = [];
  for (let at = 0; at + header <= bytes.length; ) {
    const head = bytes.subarray(at, at + header);
    const length = readU32(head, lengthAt);
    const reason: Extract<Assembled, { kind: "refused" }>["reason"] | undefined =
      length < header ? "too-short" : length > limit ? "too-long" : undefined;
    if (reason === undefined && at + length > bytes.length) break;
    found.push(
      reason === undefined
        ? `frame ${id(head)} ${latin1(bytes.subarray(at + header, at + length))}`
        : `${reason} ${id(head)} ${length}`,
    );
    at += Math.max(header, length);
  }
  return found;
}

function textOf(item: CtlItem | TtyItem): string {
  const id = "code" in item ? item.code : item.stream;
  if (item.kind === "refused") return `${item.reason} ${id} ${item.length}`;
  return `frame ${id} ${latin1("code" in item ? item.payload : item.data)}`;
}

/**
 * What the decoder finds in the stream however it is cut, with what it holds looked at all along.
 */
function cut(format: Format, bytes: Uint8Array, most: number): string[] {
  const random = new Random(digest(bytes));
  const decoder = format.decoder();
  const found: string[] = [];
  if (decoder.pending) throw new Error("It waits before anything came");
  for (let at = 0; at < bytes.length; ) {
    const part = bytes.subarray(at, at + 1 + random.below(most));
    at += part.length;
    found.push(...decoder.push(part).map(textOf));
    if (decoder.reserved > format.most + format.header)
      throw new Error(`It holds ${decoder.reserved} bytes`);
    if (decoder.wanted <= 0) throw new Error("It wants nothing");
  }
  return found;
}

/** No part of a frame: messages have digits, which are checked before they are read. */
const digits = ["hexBytes", "hexText"] as const;

function target(name: string, format: Format, files: readonly string[]): Target {
  const body = (length: number): Uint8Array => new Uint8Array(length).fill(7);
  const lengths = (bytes: Uint8Array): LengthField[] => {
    const fields: LengthField[] = [];
    for (let at = 0; at + format.header <= bytes.length && fields.length < 50; ) {
      fields.push({ at: at + format.lengthAt, bytes: 4, littleEndian: false });
      at += Math.max(format.header, Math.min(readU32(bytes, at + format.lengthAt), bytes.length));
    }
    return fields;
  };
  return {
    name,
    files: ["guest-init/protocol/bytes.ts", ...files],
    // Limits come from the configuration, not from the peer.
    except:
      name === "frames-tty"
        ? ["u32Bytes", "joinBytes", ...digits]
        : ["CtlDecoder", "u32Bytes", "joinBytes", "readU64", "encodeNext", ...digits],
    seeds: [
      format.encode(1, body(0)),
      format.encode(9, body(40)),
      format.encode(2, body(limit - format.header)),
    ],
    longest: 24_000,
    lengths,
    generate: (random) =>
      new Uint8Array(
        Buffer.concat(
          random.list(1 + random.below(5), () => {
            const frame = format.encode(
              random.below(300),
              body(random.below(random.once(50) ? 21_000 : 40)),
            );
            return random.once(8) ? frame.subarray(0, random.below(frame.length)) : frame;
          }),
        ),
      ),
    run: (bytes) => {
      const expected = reference(format, bytes).join(";");
      for (const most of [bytes.length + 1, 16, ...(bytes.length < 300 ? [1] : [])])
        if (cut(format, bytes, most).join(";") !== expected)
          throw new Error("Another reading of the stream");
    },
  };
}

export const frames: readonly Target[] = [
  target("frames-control", ctl, ["guest-init/protocol/ctl-frame.ts"]),
  // What control frames do not use of the assembler, these do.
  target("frames-tty", tty, [
    "guest-init/protocol/assembler.ts",
    "guest-init/protocol/tty-frame.ts",
  ]),
];
