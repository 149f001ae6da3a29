import { type Assembled, FrameAssembler, type RefusalReason } from "./assembler.ts";
import { noBytes, readU32, readU64, writeU32 } from "./bytes.ts";

/**
 * Tty frame: u64BE stream, u32BE total length with these 12 bytes, data; no data means end of
 * stream.
 */
export const ttyHeaderSize = 12;
/**
 * Limits of a whole tty frame, bytes. A hyperstart that gets more than 4,096 ends, and its kernel
 * with it; ends that agreed on the extension exchange up to `extension`: what Linux passes on in
 * one piece (virtio_console's write takes 32 KiB at a time), so an agent that is killed leaves no
 * half frame behind.
 */
export const ttyLimit = { hyperstart: 4096, extension: 32 * 1024 } as const;
/**
 * runv sends standard input in frames of at most 16 bytes of data; hyperstart's guest buffer holds
 * 512.
 */
export const hyperstartInput = {
  frame: 16,
  buffer: 512,
  /**
   * Most bytes that a process which does not read can be given without loss: hyperstart writes at
   * most its buffer at a time into a pipe of 16 pages, and the kernel begins a new page for data
   * that does not fit into the last one (pipe_write, Linux 6.1). So each page has at least 4096 -
   * 511 bytes.
   */
  most: 56 * 1024,
} as const;

interface TtyFrame {
  readonly kind: "frame";
  readonly stream: bigint;
  /** Empty at the end of the stream. */
  readonly data: Uint8Array;
}
interface RefusedTtyFrame {
  readonly kind: "refused";
  readonly stream: bigint;
  readonly length: number;
  readonly reason: RefusalReason;
}
export type TtyItem = TtyFrame | RefusedTtyFrame;

/** Bytes of one tty frame; without data, the end of the stream. */
export function encodeTtyFrame(stream: bigint, data: Uint8Array = noBytes): Uint8Array {
  const { length } = data;
  const frame = new Uint8Array(ttyHeaderSize + length);
  // The agent's engine takes long for a number that is more than one word.
  const small = Number(stream);
  if (small <= 0xffffffff) writeU32(frame, 4, small);
  else {
    writeU32(frame, 0, Number(stream >> 32n));
    writeU32(frame, 4, Number(stream & 0xffffffffn));
  }
  writeU32(frame, 8, ttyHeaderSize + length);
  if (length > 0) frame.set(data, ttyHeaderSize);
  return frame;
}

/** Cuts the tty channel's bytes into frames; see `FrameAssembler` for what `refused` means. */
export class TtyDecoder extends FrameAssembler<TtyItem> {
  constructor(limit: number = ttyLimit.extension, { shares = false } = {}) {
    super({
      shares,
      headerSize: ttyHeaderSize,
      lengthOf: (header, at) => readU32(header, at + 8),
      limit,
      itemOf: ttyItemOf,
    });
  }
}

function ttyItemOf(item: Assembled): TtyItem {
  const stream = readU64(item.header, item.at);
  return item.kind === "frame"
    ? { kind: "frame", stream, data: item.body }
    : { kind: "refused", stream, length: item.length, reason: item.reason };
}
