import { PodnetError } from "./errors.ts";
import { printable } from "./names.ts";

/** Ports of the host, from the first to the last, that a network opens to its guests. */
interface HostPorts {
  readonly protocol: "tcp" | "udp";
  readonly first: number;
  readonly last: number;
}

/** What guests of a network reach on the host, in addition to what podnet serves there. */
export type HostAccess = "all" | readonly HostPorts[];

/** Entries that a network has at most. */
export const mostHostAccess = 64;

/**
 * Reads `tcp/PORT`, `udp/PORT`, `tcp/FIRST-LAST`, or `all` alone. Ranges that touch become one, so
 * that equal access has one form. `field` of an error has the place in the list. Throws
 * `INVALID_ARGUMENT`.
 */
export function parseHostAccess(texts: readonly string[], field = "host_access"): HostAccess {
  if (texts.length === 1 && texts[0] === "all") return "all";
  const ports = texts.map((text, i) => parsePorts(text, `${field}[${i}]`));
  return (["tcp", "udp"] as const).flatMap((protocol) =>
    joined(ports.filter((each) => each.protocol === protocol)),
  );
}

/** The texts that `parseHostAccess` reads. */
export const hostAccessTexts = (access: HostAccess): string[] =>
  access === "all"
    ? ["all"]
    : access.map(
        ({ protocol, first, last }) => `${protocol}/${first}${first === last ? "" : `-${last}`}`,
      );

function parsePorts(text: string, field: string): HostPorts {
  const [, protocol, from = "", to = from] =
    /^(tcp|udp)\/(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const [first, last] = [Number(from), Number(to)];
  const isPort = (port: number): boolean => port >= 1 && port <= 65535;
  if ((protocol === "tcp" || protocol === "udp") && isPort(first) && isPort(last) && first <= last)
    return { protocol, first, last };
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" names no ports of the host`, {
    field,
    hint: "Write tcp/PORT, udp/PORT or tcp/FIRST-LAST, with ports from 1 to 65535; or all alone",
  });
}

/** Without overlaps, in order. */
function joined(ports: readonly HostPorts[]): HostPorts[] {
  const found: HostPorts[] = [];
  for (const next of ports.toSorted((a, b) => a.first - b.first)) {
    const before = found.at(-1);
    if (before === undefined || next.first > before.last + 1) found.push(next);
    else found[found.length - 1] = { ...before, last: Math.max(before.last, next.last) };
  }
  return found;
}
