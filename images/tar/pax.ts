import { unreadable } from "../unreadable.ts";
import type { Bytes } from "./entry.ts";

/** Records of a pax header by their keys. A record without a value takes back an earlier one. */
export type PaxRecords = Map<Bytes, Bytes>;

const damaged = () => unreadable("A header of the archive is damaged (pax)");

/**
 * Adds the records of a pax extended header (POSIX.1-2008, pax, "pax Extended Header"): each is
 * `LENGTH KEY=VALUE\n`, where the length counts all of the record. Values may hold any byte.
 */
export function decodePax(bytes: Uint8Array, records: PaxRecords): void {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
  for (let at = 0; at < text.length; ) {
    const space = text.indexOf(" ", at);
    const digits = text.slice(at, space);
    if (space < 0 || !/^[1-9][0-9]{0,7}$/.test(digits)) throw damaged();
    const end = at + Number(digits);
    const equals = text.indexOf("=", space);
    if (end > text.length || text[end - 1] !== "\n" || equals < 0 || equals >= end) throw damaged();
    records.set(text.slice(space + 1, equals), text.slice(equals + 1, end - 1));
    at = end;
  }
}

/** The body of a pax extended header with these records. */
export const encodePax = (records: Iterable<readonly [Bytes, Bytes]>): Uint8Array =>
  Buffer.from([...records].map(paxRecord).join(""), "latin1");

function paxRecord([key, value]: readonly [Bytes, Bytes]): Bytes {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length;
  // The length counts its own digits.
  while (String(length).length + rest.length !== length)
    length = String(length).length + rest.length;
  return `${length}${rest}`;
}
