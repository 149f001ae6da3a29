import { joinBytes, readU32, u32Bytes } from "./bytes.ts";
import { asInteger, asString, encodeJson, malformed, parseObject } from "./fields.ts";

/** Which file READFILE and WRITEFILE mean. */
export interface FileTarget {
  readonly container: string;
  readonly file: string;
}
export interface WriteFile extends FileTarget {
  readonly data: Uint8Array;
}

/** Payload of READFILE; the reply's ACK carries the bytes. Throws `AGENT_PROTOCOL`. */
export const parseReadFile = (payload: Uint8Array): FileTarget =>
  parseObject(payload, (fields) => ({
    container: fields.required("container", asString),
    file: fields.required("file", asString),
  }));
export const encodeReadFile = ({ container, file }: FileTarget): Uint8Array =>
  encodeJson({ container, file });

/** Payload of WRITEFILE: an object, and the raw bytes right after the first `}`. */
export function parseWriteFile(payload: Uint8Array): WriteFile {
  const brace = payload.indexOf(0x7d);
  if (brace < 0) throw malformed("The message has no object before its data");
  const target = parseReadFile(payload.subarray(0, brace + 1));
  return { ...target, data: payload.slice(brace + 1) };
}

export function encodeWriteFile({ container, file, data }: WriteFile): Uint8Array {
  // The reader ends the object at the first brace, even inside a string.
  if (container.includes("}") || file.includes("}"))
    throw malformed(`"file" has a closing brace, which WRITEFILE cannot carry`, "file");
  return joinBytes([encodeReadFile({ container, file }), data]);
}

/** A file with its owner and mode: WRITEFILE has neither. */
export interface PlacedFile {
  readonly path: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly data: Uint8Array;
}

/** Payload of PLACEFILE: u32BE length of an object, the object, and the raw bytes. */
export function encodePlaceFile({ data, ...about }: PlacedFile): Uint8Array {
  const head = encodeJson(about);
  return joinBytes([u32Bytes(head.length), head, data]);
}

/** Throws `AGENT_PROTOCOL`. */
export function parsePlaceFile(payload: Uint8Array): PlacedFile {
  const end = payload.length < 4 ? Number.POSITIVE_INFINITY : 4 + readU32(payload, 0);
  if (end > payload.length) throw malformed("The message is shorter than it says");
  const about = parseObject(payload.subarray(4, end), (fields) => ({
    path: fields.required("path", asString),
    mode: fields.required("mode", asMode),
    uid: fields.required("uid", asId),
    gid: fields.required("gid", asId),
  }));
  return { ...about, data: payload.slice(end) };
}

const asMode = asInteger({ max: 0o7777 });
const asId = asInteger({ max: 0xfffffffe });
