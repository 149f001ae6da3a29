import { encodeUtf8 } from "../../core/utf8.ts";
import {
  type Fields,
  type ParseValue,
  asInteger,
  asKeys,
  asString,
  decodeJson,
  encodeJson,
  given,
  list,
  malformed,
  maybe,
  needed,
  parseObject,
  quote,
  texts,
  withDefault,
} from "./fields.ts";

/** A process as EXECCMD describes it. */
export interface ProcessSpec {
  /** May be empty: hyperstart acknowledges an EXECCMD without one. */
  readonly id: string;
  readonly user?: string;
  readonly group?: string;
  readonly additionalGroups: readonly string[];
  readonly terminal: boolean;
  /** Tty stream of standard input and output (and, on a terminal, errors). Never 0. */
  readonly stdio: bigint;
  /** Tty stream of standard error; 0 on a terminal. */
  readonly stderr: bigint;
  readonly args: readonly string[];
  readonly envs: readonly { readonly env: string; readonly value: string }[];
  readonly workdir?: string;
}

export interface ExecCmd {
  readonly container: string;
  readonly process: ProcessSpec;
}

const asWhole = asInteger();
const asStream: ParseValue<bigint> = (value, path) => BigInt(asWhole(value, path));
const asUsedStream: ParseValue<bigint> = (value, path) => {
  const stream = asStream(value, path);
  if (stream === 0n) throw malformed(`"${path}" is 0`, path);
  return stream;
};
/** hyperstart's reading of a boolean: anything but `false` is true. */
const asLooseBoolean: ParseValue<boolean> = (value) => value !== false;
/** Empty is as absent. */
const asFilled: ParseValue<string> = (value, path) =>
  (asString(value, path) || undefined) as string;

const asEnv = asKeys<ProcessSpec["envs"][number]>({
  env: needed(asString),
  value: withDefault(asString, ""),
});

const asProcess = asKeys<ProcessSpec>(
  {
    id: withDefault(asString, ""),
    user: maybe(asFilled),
    group: maybe(asFilled),
    additionalGroups: texts(),
    terminal: withDefault(asLooseBoolean, false),
    stdio: needed(asUsedStream),
    stderr: withDefault(asStream, 0n),
    args: texts(),
    envs: list(asEnv),
    workdir: maybe(asFilled),
  },
  ({ terminal, stderr, args }, path) => {
    const refuse = (key: string, what: string): never => {
      throw malformed(`"${path}.${key}" is ${what}`, `${path}.${key}`);
    };
    if (stderr === 0n && !terminal) refuse("stderr", "missing");
    if (args.length === 0) refuse("args", "empty");
  },
);

const asExecCmd = asKeys<ExecCmd>({ container: needed(asString), process: needed(asProcess) });

/** Payload of EXECCMD. Throws `AGENT_PROTOCOL`. */
export const parseExecCmd = (payload: Uint8Array): ExecCmd => asExecCmd(decodeJson(payload), "");

/** EXECCMD in runv's order of keys. */
export const encodeExecCmd = ({ container, process: p }: ExecCmd): Uint8Array =>
  encodeJson({
    container,
    process: {
      id: p.id,
      ...given("user", p.user),
      ...given("group", p.group),
      ...(p.additionalGroups.length === 0 ? {} : { additionalGroups: p.additionalGroups }),
      terminal: p.terminal,
      stdio: Number(p.stdio),
      ...(p.stderr === 0n ? {} : { stderr: Number(p.stderr) }),
      args: p.args,
      ...(p.envs.length === 0 ? {} : { envs: p.envs }),
      ...given("workdir", p.workdir),
    },
  });

/** WINSIZE; clients of API 4242 name the stream instead of the process. */
export interface WinSize {
  readonly target:
    | { readonly kind: "process"; readonly container: string; readonly process: string }
    | { readonly kind: "stream"; readonly stream: bigint };
  readonly row: number;
  readonly column: number;
}

const asSize = asInteger({ max: 65535 });

export const parseWinSize = (payload: Uint8Array): WinSize =>
  parseObject(payload, (fields) => {
    const stream = fields.optional("seq", asStream);
    return {
      target:
        stream === undefined
          ? { kind: "process", ...readTarget(fields) }
          : { kind: "stream", stream },
      row: fields.required("row", asSize),
      column: fields.required("column", asSize),
    };
  });

export const encodeWinSize = ({ target, row, column }: WinSize): Uint8Array =>
  encodeJson(
    target.kind === "stream"
      ? { seq: Number(target.stream), row, column }
      : { container: target.container, process: target.process, row, column },
  );

const readTarget = (fields: Fields): { container: string; process: string } => ({
  container: fields.required("container", asString),
  process: fields.required("process", asString),
});

const asSignal = asInteger({ min: 0, max: 64 });

/** SIGNALPROCESS: to the whole process group. */
export interface SignalProcess {
  readonly container: string;
  readonly process: string;
  readonly signal: number;
}

export const parseSignalProcess = (payload: Uint8Array): SignalProcess =>
  parseObject(payload, (fields) => ({
    ...readTarget(fields),
    signal: fields.required("signal", asSignal),
  }));
export const encodeSignalProcess = ({ container, process, signal }: SignalProcess): Uint8Array =>
  encodeJson({ container, process, signal });

/** PROCESSASYNCEVENT, guest to host: a process has ended. */
export interface ProcessEvent {
  readonly container: string;
  readonly process: string;
  readonly event: "finished";
  /** Exit code; 128 + n for a process ended by signal n. */
  readonly status: number;
}

export const parseProcessEvent = (payload: Uint8Array): ProcessEvent =>
  parseObject(payload, (fields) => {
    const target = readTarget(fields);
    const event = fields.required("event", asString);
    if (event !== "finished") throw malformed(`"event" is not "finished"`, "event");
    return { ...target, event, status: fields.required("status", asInteger({ max: 0xffff })) };
  });
export const encodeProcessEvent = (e: ProcessEvent): Uint8Array =>
  encodeUtf8(
    `{"container":${quote(e.container)},"process":${quote(e.process)},"event":"${e.event}","status":${e.status}}`,
  );
