import type { Remembered } from "../../network/kernel/memory.ts";
import { damaged, parseJson } from "../store/rows.ts";

/** Parses the stored changes that the network made on the host. Throws `STATE_CORRUPT`. */
export function parseRemembered(text: string): Remembered {
  const value = parseJson(text, "the network's memory");
  if (!isRemembered(value)) throw damaged("the network's memory is not as podnetd writes it");
  return value;
}

function isRemembered(value: unknown): value is Remembered {
  if (typeof value !== "object" || value === null) return false;
  const it = value as { readonly [Key in keyof Remembered]?: unknown };
  return (
    isText(it.host) &&
    (it.ipForward === undefined || isText(it.ipForward)) &&
    (it.besideForward === undefined || isListOf(it.besideForward, isSetting)) &&
    (it.ipv6Forward === undefined || isText(it.ipv6Forward)) &&
    (it.besideIpv6Forward === undefined || isListOf(it.besideIpv6Forward, isSetting)) &&
    isListOf(it.chains, isText) &&
    (it.chains6 === undefined || isListOf(it.chains6, isText)) &&
    (it.rules6 === undefined || it.rules6 === "suspected" || it.rules6 === "known") &&
    (it.table === undefined || it.table === true) &&
    isListOf(it.raised, isText) &&
    (it.pinned === undefined || isListOf(it.pinned, Number.isSafeInteger))
  );
}

const isText = (value: unknown): boolean => typeof value === "string";

const isListOf = (value: unknown, isOne: (each: unknown) => boolean): boolean =>
  Array.isArray(value) && value.every(isOne);

function isSetting(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { key, value: set } = value as { readonly key?: unknown; readonly value?: unknown };
  return isText(key) && isText(set);
}
