import { parseIp } from "../../core/address.ts";
import type { Ip } from "../../core/address.ts";
import {
  type Fields,
  type ParseValue,
  asBoolean,
  asInteger,
  asObject,
  asString,
  asText,
  encodeJson,
  given,
  malformed,
  parseObject,
} from "./fields.ts";
import { hexBytes, hexText } from "./bytes.ts";

/**
 * The pod's main process: the one it is there for. The agent keeps the end of its output, so that a
 * host that comes back misses nothing of it.
 */
export interface MainProcessSpec {
  /** One word for this start of it: a repeated request starts nothing. */
  readonly id: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly env: string; readonly value: string }[];
  /** `user`, `user:group`, each a name or a number. Absent: root. */
  readonly user?: string;
  /** Made if it is missing. */
  readonly workdir: string;
  readonly terminal: boolean;
  /** Standard input is the host's to give; otherwise it is at its end. */
  readonly stdin: boolean;
  /** It is PID 1 of a process namespace of its own, which systemd insists on. */
  readonly init?: boolean;
  readonly rows?: number;
  readonly columns?: number;
  /** Addresses of the guest's own name in its /etc/hosts. */
  readonly addresses: readonly Ip[];
}

/** A program that is to be started later, as a shell would look for it. */
export interface SoughtProgram {
  /** Its command line. */
  readonly args: readonly string[];
  /** The variable PATH; absent: as the agent sets it. */
  readonly path?: string;
  readonly workdir: string;
}

/** Where the output goes, and from which byte of it on. */
export interface FollowMain {
  /** Tty streams. That of standard output takes the input, and has all output of a terminal. */
  readonly stdout: bigint;
  readonly stderr: bigint;
  /** Bytes of output, of both streams together, that the host has already. */
  readonly from: number;
}

/** ACK of following. */
export interface FollowedMain {
  readonly id: string;
  /** The first byte that comes: later than asked for where the agent has no more of it. */
  readonly at: number;
}

/** How a process ended. */
export type ProcessEnd = ({ readonly code: number } | { readonly signal: number }) & {
  /** Of a container: it was killed because its memory was at the limit. */
  readonly outOfMemory?: true;
  /** Of a container: what it has written to its message file, which is not empty. */
  readonly message?: Uint8Array;
};

/** Bytes of a message file that count, as in Kubernetes. */
export const messageLimit = 4096;

/** Guest to host: the main process has ended, and has written `at` bytes. */
export interface MainEnded {
  readonly id: string;
  readonly at: number;
  readonly end: ProcessEnd;
}

const asWord: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (!/^[\x21-\x7e]{1,64}$/.test(text)) throw malformed(`"${path}" is not one word`, path);
  return text;
};
const asSize = asInteger({ min: 1, max: 65535 });
export const asStream: ParseValue<bigint> = (value, path) =>
  BigInt(asInteger({ min: 1 })(value, path));
const asEnv = asObject((fields) => ({
  env: fields.required("env", asString),
  value: fields.required("value", asString),
}));

export const encodeStartMain = (spec: MainProcessSpec): Uint8Array => encodeJson(spec);
/** Throws `AGENT_PROTOCOL`. */
export const parseStartMain = (payload: Uint8Array): MainProcessSpec =>
  parseObject<MainProcessSpec>(payload, (fields) => {
    const args = fields.list("args", asString);
    if (args.length === 0) throw malformed(`"args" is empty`, "args");
    return {
      id: fields.required("id", asWord),
      args,
      env: fields.list("env", asEnv),
      ...given("user", fields.optional("user", asString)),
      workdir: fields.required("workdir", asString),
      terminal: fields.required("terminal", asBoolean),
      stdin: fields.required("stdin", asBoolean),
      ...given("init", fields.optional("init", asBoolean)),
      ...given("rows", fields.optional("rows", asSize)),
      ...given("columns", fields.optional("columns", asSize)),
      addresses: fields.list("addresses", asText(parseIp)),
    };
  });

export const encodePreload = (sought: SoughtProgram): Uint8Array => encodeJson(sought);
/** Throws `AGENT_PROTOCOL`. */
export const parsePreload = (payload: Uint8Array): SoughtProgram =>
  parseObject(payload, (fields) => ({
    args: fields.list("args", asString),
    ...given("path", fields.optional("path", asString)),
    workdir: fields.required("workdir", asString),
  }));

export const encodeFollowMain = ({ stdout, stderr, from }: FollowMain): Uint8Array =>
  encodeJson({ stdout: Number(stdout), stderr: Number(stderr), from });
export const parseFollowMain = (payload: Uint8Array): FollowMain =>
  parseObject(payload, (fields) => ({
    stdout: fields.required("stdout", asStream),
    stderr: fields.required("stderr", asStream),
    from: fields.required("from", asInteger()),
  }));

export const encodeFollowedMain = (followed: FollowedMain): Uint8Array => encodeJson(followed);
export const parseFollowedMain = (payload: Uint8Array): FollowedMain =>
  parseObject(payload, (fields) => ({
    id: fields.required("id", asWord),
    at: fields.required("at", asInteger()),
  }));

export const encodeSignalMain = (signal: number): Uint8Array => encodeJson({ signal });
export const parseSignalMain = (payload: Uint8Array): number =>
  parseObject(payload, (fields) => fields.required("signal", asInteger({ min: 1, max: 64 })));

export const encodeResizeMain = (rows: number, columns: number): Uint8Array =>
  encodeJson({ rows, columns });
export const parseResizeMain = (payload: Uint8Array): { rows: number; columns: number } =>
  parseObject(payload, (fields) => ({
    rows: fields.required("rows", asSize),
    columns: fields.required("columns", asSize),
  }));

export const encodeMainEnded = ({ id, at, end: { message, ...end } }: MainEnded): Uint8Array =>
  encodeJson({ id, at, ...end, ...(message && { message: hexText(message) }) });
/** Comes from a guest: throws `AGENT_PROTOCOL`. */
export const parseMainEnded = (payload: Uint8Array): MainEnded =>
  parseObject(payload, (fields) => {
    const id = fields.required("id", asWord);
    const at = fields.required("at", asInteger());
    const message = given("message", fields.optional("message", asMessage));
    return { id, at, end: { ...readProcessEnd(fields), ...message } };
  });

const asMessage: ParseValue<Uint8Array> = (value, path) => {
  const text = asString(value, path);
  if (!/^(?:[0-9a-f]{2})+$/.test(text) || text.length > 2 * messageLimit)
    throw malformed(`"${path}" is not up to ${messageLimit} bytes in hexadecimal`, path);
  return hexBytes(text);
};

/** The keys `signal` or `code`, and `outOfMemory`, of an object. */
export function readProcessEnd(fields: Fields): ProcessEnd {
  const signal = fields.optional("signal", asInteger({ min: 1, max: 64 }));
  const more =
    fields.optional("outOfMemory", asBoolean) === true ? { outOfMemory: true as const } : {};
  if (signal !== undefined) return { signal, ...more };
  return { code: fields.required("code", asInteger({ max: 255 })), ...more };
}
