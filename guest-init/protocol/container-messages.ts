import { parseIp } from "../../core/address.ts";
import type { Ip } from "../../core/address.ts";
import { joinBytes, readU32, u32Bytes } from "./bytes.ts";
import { agentContainer } from "./codes.ts";
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
  listOf,
  malformed,
  parseObject,
} from "./fields.ts";
import { type ProcessEnd, asStream, readProcessEnd } from "./main-process.ts";

/**
 * A container: the files of an image on a disk of its own, with a layer in memory above them, and
 * mounts and processes of its own. Network, hostname and IPC are the guest's.
 */
export interface CreateContainer {
  /** Also its directory in the guest, and its name in EXECCMD. */
  readonly id: string;
  /** Serial number of a disk with a squashfs. */
  readonly disk: string;
  /** Addresses of the guest's own name in the container's /etc/hosts. */
  readonly addresses: readonly Ip[];
  /** How long to wait for the disk, milliseconds. */
  readonly waitMs: number;
}

/** A file that is laid over one of the image; the directories above it are made. */
export interface ContainerFile {
  readonly id: string;
  readonly path: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly readOnly: boolean;
  readonly data: Uint8Array;
}

/**
 * A directory in the guest's memory, laid over one of the image. Those with a name are shared by
 * containers: each is made for the first of them, and ends with the guest.
 */
export interface ContainerVolume {
  readonly id: string;
  readonly path: string;
  /** Its name among those of the guest. Absent: it is this container's own. */
  readonly volume?: string;
  /**
   * A file or directory of a share in place of one in memory, as it is: `at` is where the guest has
   * the share, `below` what of it, empty for all. Needs the feature `writable-shares`.
   */
  readonly share?: { readonly at: string; readonly below: string };
  /** The container cannot write to it. Files are laid into one of its own before it starts. */
  readonly readOnly: boolean;
  /** For the first container. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

/** What a container may use; what is absent has no limit, or stays as it is. 0 lifts a limit. */
export interface ContainerLimits {
  readonly memoryBytes?: number;
  /** Whether all of it is killed where one of its processes would be. */
  readonly killedAsOne?: boolean;
  /** Processor time in each period; see cpu.max of cgroups(7). */
  readonly cpuQuotaUs?: number;
  readonly cpuPeriodUs?: number;
  /** Its part of processors that are busy, 1 to 10000. */
  readonly cpuWeight?: number;
  /** Processes and threads at a time. */
  readonly pids?: number;
}

/** What a container has used. */
export interface ContainerUsage {
  readonly id: string;
  readonly cpuUs: number;
  readonly memoryBytes: number;
  readonly workingSetBytes: number;
  /** Processes that were killed because its memory was at the limit. */
  readonly oomKills: number;
}

/** The first process of a container. */
export interface StartContainer {
  readonly id: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly env: string; readonly value: string }[];
  /** `user`, `user:group`, each a name or a number, as the container's files have them. */
  readonly user?: string;
  readonly groups: readonly number[];
  /** Made if it is missing. */
  readonly workdir: string;
  readonly terminal: boolean;
  /** Standard input is the host's to give; otherwise it is at its end. */
  readonly stdin: boolean;
  /** Nothing of the image can be written to. */
  readonly readOnly: boolean;
  /** Numbers of the capabilities that root has in it. Absent: all. */
  readonly capabilities?: readonly number[];
  /** No program in it gets more rights than who starts it. */
  readonly noNewPrivileges: boolean;
  /** Paths below /proc and /sys that are hidden, or cannot be written to. */
  readonly maskedPaths: readonly string[];
  readonly readOnlyPaths: readonly string[];
  /** A file laid into it, whose content comes with its end. */
  readonly messagePath?: string;
  /** Needs the feature `container-limits`. */
  readonly limits?: ContainerLimits;
  /**
   * With which it shares processes; absent: with none. Needs the feature `container-processes`, as
   * `filter` does.
   */
  readonly processes?: SharedProcesses;
  /** What the kernel does about its system calls: its own instructions, in hexadecimal digits. */
  readonly filter?: string;
}

/** The containers that ask for the same, or one that runs. */
type SharedProcesses = { readonly of: "pod" } | { readonly of: "container"; readonly id: string };

export type ContainerState =
  | { readonly kind: "created" }
  | { readonly kind: "running" }
  | { readonly kind: "ended"; readonly end: ProcessEnd };

export interface ListedContainer {
  readonly id: string;
  readonly state: ContainerState;
  /** Bytes of output so far. */
  readonly at: number;
}

/** Containers of a guest at a time. */
export const containerLimit = 32;
const pathLimit = 64;

const isContainerId = (text: string): boolean =>
  /^[a-z0-9][a-z0-9-]{0,63}$/.test(text) && text !== agentContainer;

const asId: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (!isContainerId(text)) throw malformed(`"${path}" is not the id of a container`, path);
  return text;
};
/** At most 20 bytes of it reach a guest. */
const asSerial: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,19}$/.test(text))
    throw malformed(`"${path}" is not a disk's serial number`, path);
  return text;
};
/** An absolute path without `..`, whose last part is a name. */
const asPath: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  const [first, ...parts] = text.split("/");
  if (first !== "" || parts.some((part) => part === ".." || part === "." || part === ""))
    throw malformed(`"${path}" is not an absolute path without "." and ".."`, path);
  if (text.length > 4000) throw malformed(`"${path}" is longer than 4000 characters`, path);
  return text;
};
const asPaths: ParseValue<string[]> = (value, path) => {
  const paths = listOf(asPath)(value, path);
  if (paths.length > pathLimit) throw malformed(`"${path}" has more than ${pathLimit} paths`, path);
  return paths;
};
const asNumber = asInteger({ max: 0xfffffffe });
const asCapability = asInteger({ max: 40 });
const asSize = asInteger({ min: 1, max: 65535 });
const asAmount = asInteger();
const asLimits = asObject<ContainerLimits>((fields) => ({
  ...given("memoryBytes", fields.optional("memoryBytes", asAmount)),
  ...given("killedAsOne", fields.optional("killedAsOne", asBoolean)),
  ...given("cpuQuotaUs", fields.optional("cpuQuotaUs", asAmount)),
  ...given("cpuPeriodUs", fields.optional("cpuPeriodUs", asAmount)),
  ...given("cpuWeight", fields.optional("cpuWeight", asInteger({ min: 1, max: 10_000 }))),
  ...given("pids", fields.optional("pids", asAmount)),
}));
const asEnv = asObject((fields) => ({
  env: fields.required("env", asString),
  value: fields.required("value", asString),
}));
const asShared = asObject((fields) => ({
  at: fields.required("at", asPath),
  below: fields.required("below", asBelow),
}));
/** Names without a link upwards; empty for none. */
const asBelow: ParseValue<string> = (value, path) =>
  value === "" ? "" : asPath(`/${asString(value, path)}`, path).slice(1);
const asProcesses = asObject<SharedProcesses>((fields) => {
  const of = fields.required("of", asString);
  if (of === "pod") return { of };
  if (of === "container") return { of, id: fields.required("id", asId) };
  throw malformed(`"${fields.at("of")}" is neither "pod" nor "container"`, fields.at("of"));
});
/** As many as the kernel takes of a filter. */
export const mostInstructions = 4096;
const instructionDigits = 16;
const asFilter: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (/^(?:[0-9a-f]{16})+$/.test(text) && text.length <= mostInstructions * instructionDigits)
    return text;
  throw malformed(`"${path}" is no filter of system calls`, path);
};
/** Nothing else is obeyed meanwhile. */
const longestWaitMs = 10_000;

const readId = (fields: Fields): { id: string } => ({ id: fields.required("id", asId) });

export const encodeCreateContainer = (request: CreateContainer): Uint8Array => encodeJson(request);
/** Throws `AGENT_PROTOCOL`, as all of these do. */
export const parseCreateContainer = (payload: Uint8Array): CreateContainer =>
  parseObject<CreateContainer>(payload, (fields) => ({
    ...readId(fields),
    disk: fields.required("disk", asSerial),
    addresses: fields.list("addresses", asText(parseIp)),
    waitMs: fields.required("waitMs", asInteger({ max: longestWaitMs })),
  }));

/** u32BE length of an object, the object, and the raw bytes, as PLACEFILE. */
export function encodeContainerFile({ data, ...about }: ContainerFile): Uint8Array {
  const head = encodeJson(about);
  return joinBytes([u32Bytes(head.length), head, data]);
}
export function parseContainerFile(payload: Uint8Array): ContainerFile {
  const end = payload.length < 4 ? Number.POSITIVE_INFINITY : 4 + readU32(payload, 0);
  if (end > payload.length) throw malformed("The message is shorter than it says");
  const about = parseObject(payload.subarray(4, end), (fields) => ({
    ...readId(fields),
    path: fields.required("path", asPath),
    mode: fields.required("mode", asInteger({ max: 0o777 })),
    uid: fields.required("uid", asNumber),
    gid: fields.required("gid", asNumber),
    readOnly: fields.required("readOnly", asBoolean),
  }));
  return { ...about, data: payload.slice(end) };
}

export const encodeContainerVolume = (request: ContainerVolume): Uint8Array => encodeJson(request);
export const parseContainerVolume = (payload: Uint8Array): ContainerVolume =>
  parseObject<ContainerVolume>(payload, (fields) => ({
    ...readId(fields),
    path: fields.required("path", asPath),
    ...given("volume", fields.optional("volume", asId)),
    ...given("share", fields.optional("share", asShared)),
    readOnly: fields.required("readOnly", asBoolean),
    mode: fields.required("mode", asInteger({ max: 0o7777 })),
    uid: fields.required("uid", asNumber),
    gid: fields.required("gid", asNumber),
  }));

export const encodeStartContainer = (request: StartContainer): Uint8Array => encodeJson(request);
export const parseStartContainer = (payload: Uint8Array): StartContainer =>
  parseObject<StartContainer>(payload, (fields) => {
    const args = fields.list("args", asString);
    if (args.length === 0) throw malformed(`"args" is empty`, "args");
    return {
      ...readId(fields),
      args,
      env: fields.list("env", asEnv),
      ...given("user", fields.optional("user", asString)),
      groups: fields.list("groups", asNumber),
      workdir: fields.required("workdir", asString),
      terminal: fields.required("terminal", asBoolean),
      stdin: fields.required("stdin", asBoolean),
      readOnly: fields.required("readOnly", asBoolean),
      ...given("capabilities", fields.optional("capabilities", listOf(asCapability))),
      noNewPrivileges: fields.required("noNewPrivileges", asBoolean),
      maskedPaths: fields.optional("maskedPaths", asPaths) ?? [],
      readOnlyPaths: fields.optional("readOnlyPaths", asPaths) ?? [],
      ...given("messagePath", fields.optional("messagePath", asString)),
      ...given("limits", fields.optional("limits", asLimits)),
      ...given("processes", fields.optional("processes", asProcesses)),
      ...given("filter", fields.optional("filter", asFilter)),
    };
  });

/** Where the output of a container goes, and from which byte of it on; see `FollowMain`. */
export interface FollowContainer {
  readonly id: string;
  readonly stdout: bigint;
  readonly stderr: bigint;
  readonly from: number;
}

export const encodeFollowContainer = (f: FollowContainer): Uint8Array =>
  encodeJson({ id: f.id, stdout: Number(f.stdout), stderr: Number(f.stderr), from: f.from });
export const parseFollowContainer = (payload: Uint8Array): FollowContainer =>
  parseObject(payload, (fields) => ({
    ...readId(fields),
    stdout: fields.required("stdout", asStream),
    stderr: fields.required("stderr", asStream),
    from: fields.required("from", asInteger()),
  }));

export interface SignalContainer {
  readonly id: string;
  readonly signal: number;
}

export const encodeSignalContainer = (request: SignalContainer): Uint8Array => encodeJson(request);
export const parseSignalContainer = (payload: Uint8Array): SignalContainer =>
  parseObject(payload, (fields) => ({
    ...readId(fields),
    signal: fields.required("signal", asInteger({ min: 1, max: 64 })),
  }));

export interface ResizeContainer {
  readonly id: string;
  readonly rows: number;
  readonly columns: number;
}

export const encodeResizeContainer = (request: ResizeContainer): Uint8Array => encodeJson(request);
export const parseResizeContainer = (payload: Uint8Array): ResizeContainer =>
  parseObject(payload, (fields) => ({
    ...readId(fields),
    rows: fields.required("rows", asSize),
    columns: fields.required("columns", asSize),
  }));

export interface LimitContainer {
  readonly id: string;
  readonly limits: ContainerLimits;
}

export const encodeLimitContainer = (request: LimitContainer): Uint8Array => encodeJson(request);
export const parseLimitContainer = (payload: Uint8Array): LimitContainer =>
  parseObject(payload, (fields) => ({
    ...readId(fields),
    limits: fields.required("limits", asLimits),
  }));

export const encodeContainerUsage = (list: readonly ContainerUsage[]): Uint8Array =>
  encodeJson({ containers: list });
/** Comes from a guest. */
export const parseContainerUsage = (payload: Uint8Array): ContainerUsage[] =>
  parseObject(payload, (fields) => distinct(fields.list("containers", asUsage)));

const asUsage = asObject<ContainerUsage>((fields) => ({
  ...readId(fields),
  cpuUs: fields.required("cpuUs", asInteger()),
  memoryBytes: fields.required("memoryBytes", asInteger()),
  workingSetBytes: fields.required("workingSetBytes", asInteger()),
  oomKills: fields.required("oomKills", asInteger()),
}));

/** No more than a guest has, and each once. */
function distinct<T extends { readonly id: string }>(list: T[]): T[] {
  if (list.length > containerLimit)
    throw malformed(`"containers" has more than ${containerLimit} of them`, "containers");
  if (new Set(list.map(({ id }) => id)).size < list.length)
    throw malformed(`"containers" has an id twice`, "containers");
  return list;
}

/** The payload of a command that needs no more than an id. */
export const encodeContainerId = (id: string): Uint8Array => encodeJson({ id });
export const parseContainerId = (payload: Uint8Array): string => parseObject(payload, readId).id;

export const encodeContainerList = (list: readonly ListedContainer[]): Uint8Array =>
  encodeJson({
    containers: list.map(({ id, state, at }) => ({
      id,
      state: state.kind,
      at,
      ...(state.kind === "ended" ? state.end : {}),
    })),
  });
/** Comes from a guest. */
export const parseContainerList = (payload: Uint8Array): ListedContainer[] =>
  parseObject(payload, (fields) => distinct(fields.list("containers", asListed)));

const asListed = asObject<ListedContainer>((fields) => ({
  ...readId(fields),
  state: readState(fields),
  at: fields.required("at", asInteger()),
}));

function readState(fields: Fields): ContainerState {
  const kind = fields.required("state", asString);
  if (kind === "created" || kind === "running") return { kind };
  if (kind === "ended") return { kind, end: readProcessEnd(fields) };
  throw malformed(`"${fields.at("state")}" is no state of a container`, fields.at("state"));
}
