import { isIp } from "../core/address.ts";
import { printable } from "../core/names.ts";
import { invalid } from "./fields.ts";

/** One `PublishedPort` of the API, as people write it. */
export interface PortText {
  /** As written, without brackets; empty: the host alone. */
  readonly hostIp: string;
  /** 0: podnet chooses. */
  readonly hostPort: number;
  readonly podPort: number;
  readonly count: number;
  /** Empty: tcp. */
  readonly protocol: string;
}

const hint =
  "Write [[IP:]HOST:]POD[/tcp|udp|sctp], such as 80, 8080:80, *:8000-8010:80-90/udp or [::1]:8080:80";

/** Longest text that can mean anything: an IPv6 address in brackets, two ranges, a protocol. */
const longest = 80;

/** Reads `[[ip:]host:]pod[/protocol]`, with ranges of equal length. Throws `INVALID_ARGUMENT`. */
export function parsePortText(text: string, field = "ports"): PortText {
  const wrong = (why: string): Error => invalid(field, `"${printable(text)}" ${why}`, hint);
  const match =
    text.length > longest
      ? null
      : /^(?:(?:(\*|\[[^\]]*\]|[0-9.]+):)?([0-9]*(?:-[0-9]+)?):)?([0-9]+(?:-[0-9]+)?)(?:\/([a-z]{1,8}))?$/.exec(
          text,
        );
  if (match === null) throw wrong("is not a port to publish");
  const [, address = "", host = "", pod = "", protocol = ""] = match;
  const hostIp = address.startsWith("[") ? address.slice(1, -1) : address;
  if (address.startsWith("[") ? !isIp(hostIp) || !hostIp.includes(":") : !isAddress(hostIp))
    throw wrong(`has no usable host address: "${printable(hostIp)}"`);
  const inside = parseRange(pod);
  if (inside === undefined || inside.first === 0)
    throw wrong("has a pod port that is not 1 to 65535");
  const { count } = inside;
  const at = { hostIp, podPort: inside.first, count, protocol };
  if (host === "" || host === "0") return { ...at, hostPort: 0 };
  const outside = parseRange(host);
  if (outside === undefined || outside.first === 0)
    throw wrong("has a host port that is not 1 to 65535, or 0 for one that podnet chooses");
  if (outside.count !== count)
    throw wrong(`has ${outside.count} host ports for ${count} pod ports`);
  return { ...at, hostPort: outside.first };
}

const isAddress = (text: string): boolean => text === "" || text === "*" || isIp(text);

/** `80` or `80-90`; undefined when that is no range of ports. */
function parseRange(text: string): { readonly first: number; readonly count: number } | undefined {
  const [from = "", to = from] = text.split("-");
  const [first, last] = [Number(from), Number(to)];
  if (from === "" || from.length > 5 || to.length > 5 || last < first || last > 65_535)
    return undefined;
  return { first, count: last - first + 1 };
}

/** A published port as `parsePortText` reads it back. */
export function portText({
  hostIp,
  hostPort,
  podPort,
  count = 1,
  protocol,
}: Omit<PortText, "count"> & { readonly count?: number | undefined }): string {
  const range = (first: number): string =>
    count === 1 ? `${first}` : `${first}-${first + count - 1}`;
  const address = hostIp === "" ? "" : `${hostIp.includes(":") ? `[${hostIp}]` : hostIp}:`;
  // Chosen ports are many or one, as the pod's are.
  const host = hostPort === 0 ? "0" : range(hostPort);
  const suffix = protocol === "" || protocol === "tcp" ? "" : `/${protocol}`;
  return `${address}${host}:${range(podPort)}${suffix}`;
}
