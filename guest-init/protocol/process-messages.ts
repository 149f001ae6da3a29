import {
  type Fields,
  type ParseValue,
  asInteger,
  asObject,
  asString,
  encodeJson,
  given,
  malformed,
  parseObject,
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

const asStream: ParseValue<bigint> = (value, path) => BigInt(asInteger()(value, path));
/** hyperstart's reading of a boolean: anything but `false` is true. */
const asLooseBoolean: ParseValue<boolean> = (value) => value !== false;

const asEnv = asObject((fields) => ({
  env: fields.required("env", asString),
  value: fields.optional("value", asString) ?? "",
}));

const asProcess = asObject<ProcessSpec>((fields) => {
  const terminal = fields.optional("terminal", asLooseBoolean) ?? false;
  const stdio = fields.required("stdio", asStream);
  if (stdio === 0n) throw malformed(`"${fields.at("stdio")}" is 0`, fields.at("stdio"));
  const stderr = fields.optional("stderr", asStream) ?? 0n;
  if (stderr === 0n && !terminal)
    throw malformed(`"${fields.at("stderr")}" is missing`, fields.at("stderr"));
  const args = fields.list("args", asString);
  if (args.length === 0) throw malformed(`"${fields.at("args")}" is empty`, fields.at("args"));
  return {
    id: fields.optional("id", asString) ?? "",
    ...given("user", fields.optional("user", asString) || undefined),
    ...given("group", fields.optional("group", asString) || undefined),
    additionalGroups: fields.list("additionalGroups", asString),
    terminal,
    stdio,
    stderr,
    args,
    envs: fields.list("envs", asEnv),
    ...given("workdir", fields.optional("workdir", asString) || undefined),
  };
});

/** Payload of EXECCMD. Throws `AGENT_PROTOCOL`. */
export const parseExecCmd = (payload: Uint8Array): ExecCmd =>
  parseObject(payload, (fields) => ({
    container: fields.required("container", asString),
    process: fields.required("process", asProcess),
  }));

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
  encodeJson({ container: e.container, process: e.process, event: e.event, status: e.status });
