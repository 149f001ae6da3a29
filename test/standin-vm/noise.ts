import { randomBytes } from "node:crypto";

/** Bytes that mean nothing, a newline now and then. */
export const noise = (length: number): Uint8Array => randomBytes(length);
