import { readFileSync } from "node:fs";

/** Id of a user by name or number, from /etc/passwd (passwd(5)); undefined when there is none of that name. */
export const userId = (user: string): number | undefined => idIn("/etc/passwd", user);

/** Id of a group by name or number, from /etc/group (group(5)); undefined when there is none of that name. */
export const groupId = (group: string): number | undefined => idIn("/etc/group", group);

// In both files the third field is the id.
function idIn(file: string, name: string): number | undefined {
  if (/^\d{1,10}$/.test(name)) return Number(name);
  const line = readFileSync(file, "utf8")
    .split("\n")
    .find((each) => each.startsWith(`${name}:`));
  return line === undefined ? undefined : Number(line.split(":")[2]);
}
