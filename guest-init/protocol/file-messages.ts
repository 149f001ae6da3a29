import { joinBytes } from "./bytes.ts";
import { asString, encodeJson, malformed, parseObject } from "./fields.ts";

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
