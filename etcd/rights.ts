import { isPodnetError, type PodnetError } from "../core/errors.ts";
import { etcdError } from "./errors.ts";
import type { Operation, Txn, Where } from "./etcd.ts";

/** A role's permission for a call, in the words of `etcdctl role grant-permission`. */
type Right = "read" | "write" | "readwrite";

/** The kind of access of a call, and its keys. */
export interface Needs {
  readonly right: Right;
  readonly where: Where;
}

export const reads = (where: Where): Needs => ({ right: "read", where });
export const writes = (where: Where): Needs => ({ right: "write", where });

/**
 * A transaction looks at some keys and changes others: together they are those below the directory
 * that all of them are in.
 */
export function needsOf({ when, do: done, otherwise = [] }: Txn): Needs {
  const all = [...done, ...otherwise];
  const keys = [...when.map(({ key }) => key), ...all.map(keyOf)];
  const changes = all.some(({ kind }) => kind !== "range");
  const looks = when.length > 0 || all.some(({ kind }) => kind === "range");
  const right = !changes ? "read" : looks ? "readwrite" : "write";
  return { right, where: { prefix: directoryOf(keys) } };
}

function keyOf(operation: Operation): string {
  if (operation.kind === "put") return operation.key;
  const { where } = operation;
  return "key" in where ? where.key : where.prefix;
}

function directoryOf(keys: readonly string[]): string {
  const [first = "", ...others] = keys;
  let common = first;
  for (const key of others) while (!key.startsWith(common)) common = common.slice(0, -1);
  return common.slice(0, common.lastIndexOf("/") + 1);
}

/**
 * Adds to an error which right is missing, where etcd has refused a call because the user's roles
 * do not permit it: etcd itself does not say.
 */
export function withNeeds(thrown: unknown, needs: Needs, user: string | undefined): unknown {
  if (!isPodnetError(thrown, "ETCD_DENIED") || !/permission denied/.test(thrown.message))
    return thrown;
  return missingRight(thrown, needs, user);
}

const verbs: Readonly<Record<Right, string>> = {
  read: "read",
  write: "write",
  readwrite: "read and write",
};

function missingRight(
  refusal: PodnetError,
  { right, where }: Needs,
  user: string | undefined,
): PodnetError {
  const whose = user === undefined ? "The user of this host's certificate" : `User "${user}"`;
  const [key, which] =
    "key" in where
      ? [where.key, `key "${where.key}"`]
      : [where.prefix, `keys that begin with "${where.prefix}"`];
  const range = "key" in where ? key : `--prefix=true ${key}`;
  return etcdError(
    "ETCD_DENIED",
    `${whose} may not ${verbs[right]} ${which} in etcd`,
    { ...refusal.details, right, keys: key },
    refusal,
    `Permit it: etcdctl role grant-permission ROLE ${right} ${range}`,
  );
}
