import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ProcessSpec } from "../protocol/process-messages.ts";

/** Who a process runs as. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
  readonly home: string;
}

/**
 * Content of /etc/passwd and /etc/group, empty where the file is missing: read when a name must be
 * looked up.
 */
export interface Accounts {
  passwd(): string;
  group(): string;
}

const number = /^[0-9]{1,10}$/;
const rows = (text: string): string[][] => text.split("\n").map((line) => line.split(":"));
const unknown = (what: string, name: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `There is no ${what} "${printable(name)}" in the guest`);

/**
 * The largest user or group: the next number, -1, leaves the caller's own unchanged (setresuid(2)).
 */
const largest = 0xfffffffe;

/**
 * Parses a numeric id. Other text must be refused: cut to 32 bits, or empty, it would be 0, which
 * is root.
 */
function idOf(text: string | undefined, what: string, name: string): number {
  if (text === undefined || !number.test(text) || Number(text) > largest) throw unknown(what, name);
  return Number(text);
}

function findUser(name: string, passwd: string): { uid: number; gid: number; home: string } {
  const row = rows(passwd).find((r) => r[0] === name || (number.test(name) && r[2] === name));
  if (row === undefined) return { uid: idOf(name, "user", name), gid: 0, home: "/" };
  return { uid: idOf(row[2], "user", name), gid: idOf(row[3], "user", name), home: row[5] ?? "/" };
}

function findGroup(name: string, group: string): number {
  const row = rows(group).find((r) => r[0] === name);
  return idOf(row === undefined ? name : row[2], "group", name);
}

/** Names and numbers of a process spec as numbers; without a user it is root, as in hyperstart. */
export function identify(
  spec: Pick<ProcessSpec, "user" | "group" | "additionalGroups">,
  accounts: Accounts,
): Identity {
  const user =
    spec.user === undefined
      ? { uid: 0, gid: 0, home: "/root" }
      : findUser(spec.user, accounts.passwd());
  const gid = spec.group === undefined ? user.gid : findGroup(spec.group, accounts.group());
  const groups = spec.additionalGroups.map((name) => findGroup(name, accounts.group()));
  return { uid: user.uid, gid, groups: [gid, ...groups], home: user.home };
}
