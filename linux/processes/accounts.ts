import { readFileSync } from "node:fs";

/** Id of a user by name or number, from /etc/passwd (passwd(5)); undefined for an unknown name. */
export const userId = (user: string): number | undefined => idIn("/etc/passwd", user);

/** Id of a group by name or number, from /etc/group (group(5)); undefined for an unknown name. */
export const groupId = (group: string): number | undefined => idIn("/etc/group", group);

const idIn = (file: string, name: string): number | undefined =>
  isNumber(name) ? Number(name) : findId(readFileSync(file, "utf8"), name);

const isNumber = (text: string): boolean => /^\d{1,10}$/.test(text);

/**
 * The third field of a name's line in either file; undefined when the line is missing or the field
 * is not a number: an empty one is not 0.
 */
export function findId(text: string, name: string): number | undefined {
  const line = text.split("\n").find((each) => each.startsWith(`${name}:`));
  const id = line?.split(":")[2];
  return id !== undefined && isNumber(id) ? Number(id) : undefined;
}

/** Name of a user, from /etc/passwd; undefined when it has none. */
export const userName = (uid: number): string | undefined =>
  findName(readFileSync("/etc/passwd", "utf8"), uid);

/** The first name that has this number as its third field in such a file. */
export const findName = (text: string, id: number): string | undefined =>
  text
    .split("\n")
    .map((line) => line.split(":"))
    .find(([name, , number]) => name !== "" && number === String(id))?.[0];
