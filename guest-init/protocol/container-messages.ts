import {
  type ParseValue,
  asBoolean,
  asInteger,
  asObject,
  asString,
  encodeJson,
  given,
  malformed,
  parseObject,
} from "./fields.ts";
import { type ProcessSpec, asProcess } from "./process-messages.ts";

/** NEWCONTAINER. podnet's agent runs no containers; the type is here to read what a runv sends. */
export interface NewContainer {
  readonly id: string;
  readonly rootfs?: string;
  readonly image?: string;
  readonly addr?: string;
  readonly fstype?: string;
  readonly volumes: readonly ContainerVolume[];
  readonly fsmap: readonly ContainerFsmap[];
  readonly sysctl: Readonly<Record<string, string>>;
  readonly process: ProcessSpec;
  readonly restartPolicy?: string;
  readonly initialize: boolean;
  readonly readOnly: boolean;
  readonly ports: readonly ContainerPort[];
}
export interface ContainerVolume {
  readonly device?: string;
  readonly addr?: string;
  readonly mount?: string;
  readonly fstype?: string;
  readonly readOnly: boolean;
  readonly dockerVolume: boolean;
}
export interface ContainerFsmap {
  readonly source?: string;
  readonly path?: string;
  readonly readOnly: boolean;
  readonly dockerVolume: boolean;
}
export interface ContainerPort {
  readonly protocol?: string;
  readonly hostPort: number;
  readonly containerPort: number;
}

const asVolume = asObject<ContainerVolume>((fields) => ({
  ...given("device", fields.optional("device", asString)),
  ...given("addr", fields.optional("addr", asString)),
  ...given("mount", fields.optional("mount", asString)),
  ...given("fstype", fields.optional("fstype", asString)),
  readOnly: fields.optional("readOnly", asBoolean) ?? false,
  dockerVolume: fields.optional("dockerVolume", asBoolean) ?? false,
}));

const asFsmap = asObject<ContainerFsmap>((fields) => ({
  ...given("source", fields.optional("source", asString)),
  ...given("path", fields.optional("path", asString)),
  readOnly: fields.optional("readOnly", asBoolean) ?? false,
  dockerVolume: fields.optional("dockerVolume", asBoolean) ?? false,
}));

const asPortNumber = asInteger({ max: 65535 });
const asPort = asObject<ContainerPort>((fields) => ({
  ...given("protocol", fields.optional("protocol", asString)),
  hostPort: fields.optional("hostPort", asPortNumber) ?? 0,
  containerPort: fields.optional("containerPort", asPortNumber) ?? 0,
}));

const asSysctl: ParseValue<Record<string, string>> = (value, path) => {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw malformed(`"${path}" is not an object`, path);
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, asString(item, `${path}.${key}`)]),
  );
};

export const parseNewContainer = (payload: Uint8Array): NewContainer =>
  parseObject(payload, (fields) => ({
    id: fields.required("id", asString),
    ...given("rootfs", fields.optional("rootfs", asString)),
    ...given("image", fields.optional("image", asString)),
    ...given("addr", fields.optional("addr", asString)),
    ...given("fstype", fields.optional("fstype", asString)),
    volumes: fields.list("volumes", asVolume),
    fsmap: fields.list("fsmap", asFsmap),
    sysctl: fields.optional("sysctl", asSysctl) ?? {},
    process: fields.required("process", asProcess),
    ...given("restartPolicy", fields.optional("restartPolicy", asString)),
    initialize: fields.optional("initialize", asBoolean) ?? false,
    readOnly: fields.optional("readOnly", asBoolean) ?? false,
    ports: fields.list("ports", asPort),
  }));

/** KILLCONTAINER. */
export interface KillContainer {
  readonly container: string;
  readonly signal: number;
}
export const parseKillContainer = (payload: Uint8Array): KillContainer =>
  parseObject(payload, (fields) => ({
    container: fields.required("container", asString),
    signal: fields.required("signal", asInteger({ max: 64 })),
  }));
export const encodeKillContainer = ({ container, signal }: KillContainer): Uint8Array =>
  encodeJson({ container, signal });

/** REMOVECONTAINER. */
export const parseRemoveContainer = (payload: Uint8Array): { readonly container: string } =>
  parseObject(payload, (fields) => ({ container: fields.required("container", asString) }));
