import { PodnetError } from "../../core/errors.ts";
import type { ProcessSpec } from "../protocol/process-messages.ts";

/** Who a process runs as. */
export interface Identity {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
  readonly home: string;
}

/** Content of /etc/passwd and /etc/group; empty where there is none. */
export interface Accounts {
  readonly passwd: string;
  readonly group: string;
}

const number = /^[0-9]{1,10}$/;
const rows = (text: string): string[][] => text.split("\n").map((line) => line.split(":"));
const unknown = (what: string, name: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `There is no ${what} "${name}" in the guest`);

function findUser(name: string, passwd: string): { uid: number; gid: number; home: string } {
  const row = rows(passwd).find((r) => r[0] === name || (number.test(name) && r[2] === name));
  if (row !== undefined) return { uid: Number(row[2]), gid: Number(row[3]), home: row[5] ?? "/" };
  if (number.test(name)) return { uid: Number(name), gid: 0, home: "/" };
  throw unknown("user", name);
}

function findGroup(name: string, group: string): number {
  const row = rows(group).find((r) => r[0] === name);
  if (row !== undefined) return Number(row[2]);
  if (number.test(name)) return Number(name);
  throw unknown("group", name);
}

/** Names and numbers of a process spec as numbers; without a user it is root, as in hyperstart. */
export function identify(
  spec: Pick<ProcessSpec, "user" | "group" | "additionalGroups">,
  accounts: Accounts,
): Identity {
  const user =
    spec.user === undefined
      ? { uid: 0, gid: 0, home: "/root" }
      : findUser(spec.user, accounts.passwd);
  const gid = spec.group === undefined ? user.gid : findGroup(spec.group, accounts.group);
  const groups = spec.additionalGroups.map((name) => findGroup(name, accounts.group));
  return { uid: user.uid, gid, groups: [gid, ...groups], home: user.home };
}
