import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";

export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Reads `FIRST-LAST`, or two numbers with white space between as net.ipv4.ip_local_port_range has
 * them. Throws `INVALID_ARGUMENT`.
 */
export function parsePortRange(text: string): PortRange {
  const match = /^(\d{1,5})(?:\s*-\s*|\s+)(\d{1,5})$/.exec(text.trim());
  const [first, last] = [Number(match?.[1]), Number(match?.[2])];
  if (match !== null && first >= 1 && first <= last && last <= 65_535) return { first, last };
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is no range of ports`, {
    hint: "Write FIRST-LAST, from 1 to 65535",
  });
}
