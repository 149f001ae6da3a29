import { decodeUtf8 } from "../../core/utf8.ts";
import { type Exchange, parseExchange, renderExchange } from "./exchange.ts";
import { asObject, countAt } from "./json.ts";
import { cniError, refusal } from "./refusal.ts";

/**
 * A DEL that came while podnetd was away or had too much to do: `podnet-cni` writes it down and succeeds, and podnetd settles
 * it when it starts, or soon after it was written.
 *
 * None is missed: the plugin writes first and then tries podnetd once more; podnetd listens first and then looks, and
 * answers nobody before it has. Whoever comes second sees what the other did. While podnetd runs it looks again and again:
 * the second try may find no room, or come back without an answer.
 */
export const defaultPendingDirectory = "/var/lib/podnet/cni-pending";

/** A record's file: one for each attachment, so that asking again adds none. `@` is in no container's ID. */
export const pendingName = (containerId: string, ifName: string): string =>
  `${containerId}@${ifName}.json`;

/** Of a record that is being written, until it has its name: its plugin's process. */
export const draftName = (pid: number): string => `.${pid}`;

export const isDraftName = (name: string): boolean => /^\.\d+$/.test(name);

/** Whether a file is a record that is whole; what is being written begins with a dot. */
export const isPendingName = (name: string): boolean =>
  !name.startsWith(".") && name.endsWith(".json");

export interface Pending extends Exchange {
  /** When it was written, milliseconds since 1970: what was attached later is not meant. */
  readonly atMs: number;
}

export const renderPending = (
  env: Readonly<Record<string, string>>,
  config: string,
  atMs: number,
): string => renderExchange(env, config, { atMs });

/** Reads a record. Throws with CNI's error 6. */
export function parsePending(bytes: Uint8Array): Pending {
  const exchange = parseExchange(bytes);
  const atMs = countAt(asObject(JSON.parse(decodeUtf8(bytes)), "body"), "atMs", "atMs");
  if (atMs === undefined)
    throw refusal("The record does not say when it was written", {
      cni: cniError.decode,
      field: "atMs",
      hint: "Remove the file: what it asks for, garbage collection does",
    });
  return { ...exchange, atMs };
}
