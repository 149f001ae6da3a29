import { PodnetError } from "./errors.ts";
import { printable } from "./names.ts";

/** Who a program runs as: names or numbers of a user and, if given, a group. */
export interface UserAndGroup {
  readonly user: string;
  readonly group?: string;
}

// A colon separates, in /etc/passwd too; a line's end would begin an entry there.
const part = /^[^:\s\p{Cc}]{1,64}$/u;

/**
 * Parses `USER[:GROUP]`, as container images and docker have it; undefined for none. Whether there
 * is such a user only the guest knows. Throws `INVALID_ARGUMENT`.
 */
export function parseUserText(text: string, field: string): UserAndGroup | undefined {
  if (text === "") return undefined;
  const [user = "", group, ...more] = text.split(":");
  const isGood = part.test(user) && (group === undefined || part.test(group));
  if (!isGood || more.length > 0) {
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is not a user`, {
      field,
      hint: "Write USER or USER:GROUP, each a name or a number",
    });
  }
  return group === undefined ? { user } : { user, group };
}
