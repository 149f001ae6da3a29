import { decodeUtf8 } from "../../core/utf8.ts";
import { type Exchange, parseExchange, renderExchange } from "./exchange.ts";
import { asObject, countAt, textAt } from "./json.ts";
import { cniError, refusal } from "./refusal.ts";

/**
 * A DEL that came while podnetd was away or overloaded: `podnet-cni` writes it down and succeeds,
 * and podnetd carries it out when it starts, or soon after it was written.
 *
 * No record is missed. The plugin writes first and then tries podnetd once more; podnetd listens
 * first and then reads the records, and answers no call before. So the second of the two always
 * sees the work of the first. While podnetd runs it reads the records repeatedly: the plugin's
 * second try may be refused, or end without an answer.
 */
export const defaultPendingDirectory = "/var/lib/podnet/cni-pending";

/**
 * A record's file: one for each attachment, so that asking again adds none. `@` is in no
 * container's ID.
 */
export const pendingName = (containerId: string, ifName: string): string =>
  `${containerId}@${ifName}.json`;

/** Of a record that is being written, until it has its name: its plugin's process. */
export const temporaryName = (pid: number): string => `.${pid}`;

export const isTemporaryName = (name: string): boolean => /^\.\d+$/.test(name);

/** Whether a file is a record that is whole; what is being written begins with a dot. */
export const isPendingName = (name: string): boolean =>
  !name.startsWith(".") && name.endsWith(".json");

export interface Pending extends Exchange {
  /** When it was written, milliseconds since 1970. */
  readonly atMs: number;
  /** The moment by a clock that cannot be set; absent in records of plugins before. */
  readonly moment?: Moment;
}

/** A moment of one boot of the host, by a clock that cannot be set. */
export interface Moment {
  /** /proc/sys/kernel/random/boot_id. */
  readonly boot: string;
  /** CLOCK_MONOTONIC, microseconds. */
  readonly us: number;
}

/**
 * Whether a record is about an attachment that was made at a moment: what was attached after it was
 * written is not meant. Without both moments the host's clock decides. `now` is the boot it is
 * asked in.
 */
export function isMeant(
  { atMs, moment }: Pick<Pending, "atMs" | "moment">,
  made: { readonly createdMs: number; readonly moment: Moment | undefined },
  now: string,
): boolean {
  if (moment === undefined || made.moment === undefined) return made.createdMs <= atMs;
  if (moment.boot === made.moment.boot) return made.moment.us <= moment.us;
  // No container outlives its boot.
  return moment.boot === now;
}

export const renderPending = (
  env: Readonly<Record<string, string>>,
  config: string,
  atMs: number,
  moment?: Moment,
): string =>
  renderExchange(env, config, {
    atMs,
    ...(moment === undefined ? {} : { boot: moment.boot, monotonicUs: moment.us }),
  });

/** Reads a record. Throws with CNI's error 6. */
export function parsePending(bytes: Uint8Array): Pending {
  const exchange = parseExchange(bytes);
  const object = asObject(JSON.parse(decodeUtf8(bytes)), "body");
  const atMs = countAt(object, "atMs", "atMs");
  if (atMs === undefined)
    throw refusal("The record does not say when it was written", {
      cni: cniError.decode,
      field: "atMs",
      hint: "Remove the file: garbage collection does its work",
    });
  const boot = textAt(object, "boot", "boot");
  const us = countAt(object, "monotonicUs", "monotonicUs");
  return {
    ...exchange,
    atMs,
    ...(boot === undefined || us === undefined ? {} : { moment: { boot, us } }),
  };
}
