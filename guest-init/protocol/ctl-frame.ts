import { type Assembled, FrameAssembler, type RefusalReason } from "./assembler.ts";
import { noBytes, readU32, u32Bytes, writeU32 } from "./bytes.ts";
import { command } from "./codes.ts";

/**
 * Control frame: u32BE code, u32BE total length with these 8 bytes, payload (hyperstart, API 4244).
 */
const ctlHeaderSize = 8;
/**
 * Limits of a whole control frame, bytes: what is accepted unless configured, and what may be
 * configured.
 */
export const ctlLimit = { default: 1024 * 1024, max: 10 * 1024 * 1024 } as const;

export interface CtlFrame {
  readonly kind: "frame";
  readonly code: number;
  readonly payload: Uint8Array;
}
interface RefusedCtlFrame {
  readonly kind: "refused";
  readonly code: number;
  /** Total length as announced. */
  readonly length: number;
  readonly reason: RefusalReason;
}
export type CtlItem = CtlFrame | RefusedCtlFrame;

/** Bytes of one control frame. */
export function encodeCtlFrame(code: number, payload: Uint8Array = noBytes): Uint8Array {
  const length = ctlHeaderSize + payload.length;
  const frame = new Uint8Array(length);
  writeU32(frame, 0, code);
  writeU32(frame, 4, length);
  frame.set(payload, ctlHeaderSize);
  return frame;
}

/** NEXT: the agent's acknowledgement of `consumed` bytes read from the control channel. */
export const encodeNext = (consumed: number): Uint8Array =>
  encodeCtlFrame(command.next, u32Bytes(consumed));

/** Cuts the control channel's bytes into frames; see `FrameAssembler` for what `refused` means. */
export class CtlDecoder extends FrameAssembler<CtlItem> {
  /** `limit`: largest whole frame in bytes, at most `ctlLimit.max`. */
  constructor(limit: number = ctlLimit.default) {
    if (limit < ctlHeaderSize || limit > ctlLimit.max)
      throw new RangeError(`Control frame limit ${limit} is not between 8 and ${ctlLimit.max}`);
    super({
      headerSize: ctlHeaderSize,
      lengthOf: (header, at) => readU32(header, at + 4),
      limit,
      itemOf: ctlItemOf,
    });
  }
}

function ctlItemOf(item: Assembled): CtlItem {
  const code = readU32(item.header, item.at);
  return item.kind === "frame"
    ? { kind: "frame", code, payload: item.body }
    : { kind: "refused", code, length: item.length, reason: item.reason };
}
