import {
  asBoolean,
  asString,
  encodeJson,
  given,
  malformed,
  parseObject,
  type ParseValue,
} from "./fields.ts";

/** A directory of the host, and where the guest is to have it. */
export interface MountedShare {
  /** The name that the machine gives it. */
  readonly tag: string;
  /** An absolute path in the guest. */
  readonly path: string;
  /** The guest may write to it. Needs the feature `writable-shares`. */
  readonly writable?: boolean;
}

/** Payload of MOUNTSHARE. The ACK is empty. */
export const encodeMountShare = ({ tag, path, writable }: MountedShare): Uint8Array =>
  encodeJson({ tag, path, ...given("writable", writable) });

/** Throws `AGENT_PROTOCOL`. */
export const parseMountShare = (payload: Uint8Array): MountedShare =>
  parseObject(payload, (fields) => ({
    tag: fields.required("tag", asTag),
    path: fields.required("path", asPath),
    ...given("writable", fields.optional("writable", asBoolean)),
  }));

const asTag: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  if (!/^[a-z0-9]{1,36}$/.test(text)) throw malformed(`"${path}" is no tag of a share`, path);
  return text;
};

const asPath: ParseValue<string> = (value, path) => {
  const text = asString(value, path);
  const parts = text.split("/").slice(1);
  if (!text.startsWith("/") || parts.some((part) => ["", ".", ".."].includes(part)))
    throw malformed(`"${path}" is no absolute path`, path);
  return text;
};
