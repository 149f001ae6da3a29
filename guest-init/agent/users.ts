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
/** Memberships taken of /etc/group, fewer than setgroups(2) takes (NGROUPS_MAX, 65536). */
const mostGroups = 1024;

/**
 * Parses a numeric id. Other text must be refused: cut to 32 bits, or empty, it would be 0, which
 * is root.
 */
function idOf(text: string | undefined, what: string, name: string): number {
  if (text === undefined || !number.test(text) || Number(text) > largest) throw unknown(what, name);
  return Number(text);
}

interface User {
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
  /** Undefined for a number that is not in /etc/passwd. */
  readonly name?: string | undefined;
}

function findUser(name: string, passwd: string): User {
  const all = rows(passwd);
  // A user may be called by digits: then the name counts.
  const row =
    all.find((r) => r[0] === name) ??
    all.find((r) => number.test(name) && number.test(r[2] ?? "") && Number(r[2]) === Number(name));
  if (row === undefined) return { uid: idOf(name, "user", name), gid: 0, home: "/" };
  const [account, , uid, gid, , home = "/"] = row;
  return { uid: idOf(uid, "user", name), gid: idOf(gid, "user", name), home, name: account };
}

function findGroup(name: string, group: string): number {
  const row = rows(group).find((r) => r[0] === name);
  return idOf(row === undefined ? name : row[2], "group", name);
}

/** Groups that a user is a member of, without those whose number makes no sense. */
const membershipsOf = (name: string, group: string): number[] =>
  rows(group)
    .filter((r) => r[3]?.split(",").includes(name) === true && number.test(r[2] ?? ""))
    .map((r) => Number(r[2]))
    .filter((gid) => gid <= largest)
    .slice(0, mostGroups);

const root: Identity = { uid: 0, gid: 0, groups: [0], home: "/root" };

/**
 * Names and numbers of a process spec as numbers; without a user it is root, as in hyperstart. As
 * docker has it, a user without a group gets those that it is a member of, and with one it gets
 * that group alone.
 */
export function identify(
  spec: Pick<ProcessSpec, "user" | "group" | "additionalGroups">,
  accounts: Accounts,
): Identity {
  const { user: name, group, additionalGroups } = spec;
  if (name === undefined && group === undefined && additionalGroups.length === 0) return root;
  const user: User =
    spec.user === undefined
      ? { uid: 0, gid: 0, home: "/root" }
      : findUser(spec.user, accounts.passwd());
  const gid = spec.group === undefined ? user.gid : findGroup(spec.group, accounts.group());
  const own =
    spec.group === undefined && user.name !== undefined
      ? membershipsOf(user.name, accounts.group())
      : [];
  const more = spec.additionalGroups.map((name) => findGroup(name, accounts.group()));
  return { uid: user.uid, gid, groups: [...new Set([gid, ...own, ...more])], home: user.home };
}
