import { assertNever } from "../../core/brand.ts";
import { decodeUtf8, encodeUtf8 } from "../../core/utf8.ts";
import { joinBytes, noBytes, readU32, u32Bytes } from "./bytes.ts";
import { malformed } from "./fields.ts";

/**
 * What the host has the agent do, one after the other, in one frame of bytes. The host decides and
 * encodes, and reads the results: the agent's engine is slow.
 */
export type Step =
  /** Stirs bytes into the kernel's random pool, followed by a reseed. */
  | { readonly kind: "entropy"; readonly bytes: Uint8Array }
  /**
   * Sets the wall time, milliseconds since 1970; absent leaves it. Its result is the time then, in
   * digits.
   */
  | { readonly kind: "clock"; readonly ms?: number }
  | { readonly kind: "hostname"; readonly name: string }
  /** The content of resolv.conf. */
  | { readonly kind: "resolver"; readonly text: string }
  /** Writes into a file that is there, as those of /proc are. */
  | { readonly kind: "write-file"; readonly path: string; readonly text: string }
  /** Its result is the file's content; nothing where there is no such file. */
  | { readonly kind: "read-file"; readonly path: string }
  /** Messages for rtnetlink, the last of which may ask for a list. Its result is all answers. */
  | { readonly kind: "netlink"; readonly requests: Uint8Array }
  /** A frame that leaves by a link: struct sockaddr_ll, then the frame. */
  | { readonly kind: "packet"; readonly to: Uint8Array; readonly frame: Uint8Array }
  /** This guest is a clone: the names by which it differs from its twins. */
  | { readonly kind: "twin"; readonly epoch: string; readonly machineId: string };

type Kind = Step["kind"];

/** By number on the wire. */
const kinds: readonly Kind[] = [
  "entropy",
  "clock",
  "hostname",
  "resolver",
  "write-file",
  "read-file",
  "netlink",
  "packet",
  "twin",
];

const sockaddrLlSize = 20;
/** Above the kind: the length of the step's body. */
const kindBits = 4;
const bodyMax = 2 ** (32 - kindBits) - 1;
/** Of two numbers that make one. */
const upper = 2 ** 32;

/** Payload of STEPS: each step is a word with its kind and length, and its body. */
export const encodeSteps = (steps: readonly Step[]): Uint8Array =>
  joinBytes(
    steps.flatMap((step) => {
      const body = bodyOf(step);
      if (body.length > bodyMax) throw new RangeError(`A step of ${body.length} bytes`);
      const head = u32Bytes(((body.length << kindBits) | kinds.indexOf(step.kind)) >>> 0);
      return [head, body];
    }),
  );

function bodyOf(step: Step): Uint8Array {
  switch (step.kind) {
    case "entropy":
      return step.bytes;
    case "clock":
      return step.ms === undefined
        ? noBytes
        : joinBytes([u32Bytes(Math.floor(step.ms / upper)), u32Bytes(step.ms % upper)]);
    case "hostname":
      return encodeUtf8(step.name);
    case "resolver":
      return encodeUtf8(step.text);
    case "write-file":
      return encodeUtf8(`${step.path}\0${step.text}`);
    case "read-file":
      return encodeUtf8(step.path);
    case "netlink":
      return step.requests;
    case "packet":
      return joinBytes([step.to, step.frame]);
    case "twin":
      return encodeUtf8(`${step.epoch}\0${step.machineId}`);
    default:
      return assertNever(step);
  }
}

/** Throws `AGENT_PROTOCOL`. Bodies are views of the payload. */
export function parseSteps(payload: Uint8Array): Step[] {
  const steps: Step[] = [];
  for (let at = 0; at < payload.length; ) {
    if (at + 4 > payload.length) throw malformed("The last step is cut off");
    const head = readU32(payload, at);
    const end = at + 4 + (head >>> kindBits);
    const kind = kinds[head & (2 ** kindBits - 1)];
    if (kind === undefined || end > payload.length)
      throw malformed(`Step ${steps.length} is unknown, or cut off`);
    steps.push(stepOf(kind, payload.subarray(at + 4, end)));
    at = end;
  }
  return steps;
}

function stepOf(kind: Kind, body: Uint8Array): Step {
  switch (kind) {
    case "entropy":
      return { kind, bytes: body };
    case "clock": {
      if (body.length === 0) return { kind };
      const ms = body.length === 8 ? readU32(body, 0) * upper + readU32(body, 4) : Number.NaN;
      if (!Number.isSafeInteger(ms)) throw malformed("A clock's step is not a time");
      return { kind, ms };
    }
    case "hostname":
      return { kind, name: textOf(body) };
    case "resolver":
      return { kind, text: textOf(body) };
    case "write-file": {
      const [path, text] = pairOf(body);
      return { kind, path, text };
    }
    case "read-file":
      return { kind, path: textOf(body) };
    case "netlink":
      return { kind, requests: body };
    case "packet":
      if (body.length < sockaddrLlSize) throw malformed("A packet's step has no address");
      return { kind, to: body.subarray(0, sockaddrLlSize), frame: body.subarray(sockaddrLlSize) };
    case "twin": {
      const [epoch, machineId] = pairOf(body);
      if (!isEpoch.test(epoch) || !isMachineId.test(machineId))
        throw malformed("A twin's step has no names that can be told apart");
      return { kind, epoch, machineId };
    }
    default:
      return assertNever(kind);
  }
}

const isEpoch = /^[\x21-\x7e]{1,255}$/;
/** As in machine-id(5). */
const isMachineId = /^[0-9a-f]{32}$/;

/** Two texts with a NUL in between. */
function pairOf(body: Uint8Array): readonly [string, string] {
  const cut = body.indexOf(0);
  if (cut < 0) throw malformed("A step of two texts has one");
  return [textOf(body.subarray(0, cut)), textOf(body.subarray(cut + 1))];
}

function textOf(body: Uint8Array): string {
  const text = decodeUtf8(body);
  // The kernel and C end a text at its first NUL.
  if (text.includes("\0")) throw malformed("A step's text has a NUL character in it");
  return text;
}

/** The results of the steps that were done, and the error number of the one that was not. */
export interface StepResults {
  readonly done: readonly Uint8Array[];
  /** 0 when all were done. */
  readonly errno: number;
}

/** ACK of STEPS: the error number, then each result behind its length. */
export const encodeStepResults = ({ done, errno }: StepResults): Uint8Array =>
  joinBytes([u32Bytes(errno), ...done.flatMap((result) => [u32Bytes(result.length), result])]);

/** Comes from a guest: throws `AGENT_PROTOCOL`. Results are views of the payload. */
export function parseStepResults(payload: Uint8Array): StepResults {
  if (payload.length < 4) throw malformed("There are no results of steps");
  const done: Uint8Array[] = [];
  for (let at = 4; at < payload.length; ) {
    const end = at + 4 <= payload.length ? at + 4 + readU32(payload, at) : Infinity;
    if (end > payload.length) throw malformed(`Result ${done.length} of a step is cut off`);
    done.push(payload.subarray(at + 4, end));
    at = end;
  }
  return { done, errno: readU32(payload, 0) };
}
