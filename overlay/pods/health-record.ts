import { type Ip, parseIp } from "../../core/address.ts";
import { parseServiceName, type ServiceName } from "../../core/names.ts";
import { jsonOf } from "../flannel/json.ts";
import { readable, unreadable } from "./readable.ts";

/** A backend of a service that does not serve, as its host says. */
export interface UnhealthyBackend {
  readonly service: ServiceName;
  readonly address: Ip;
  readonly port: number;
  readonly why: string;
}

/** As for records of pods: see `record.ts`. */
const version = 1;
/** Longest that is read, characters; more than the backends below come to. */
const longest = 1_000_000;
/** Backends that one host reports, at most: the others count as healthy. */
const most = { backends: 2048, why: 128 } as const;

/** The data that a host publishes about backends that it asks; sorted, so that it is comparable. */
export const healthRecordText = (unhealthy: readonly UnhealthyBackend[]): string =>
  JSON.stringify({
    version,
    unhealthy: unhealthy
      .map(({ why, ...rest }) => ({ ...rest, why: why.slice(0, most.why) }))
      .toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
      .slice(0, most.backends),
  });

const keyOf = ({ service, address, port }: Omit<UnhealthyBackend, "why">): string =>
  `${service} ${address} ${port}`;

/** Reads what another host published; undefined when it cannot be read. */
export function parseHealthRecord(text: string): readonly UnhealthyBackend[] | undefined {
  const read = text.length > longest ? undefined : jsonOf(text);
  if (typeof read !== "object" || read === null) return undefined;
  const fields = read as Readonly<Record<string, unknown>>;
  const list = fields["unhealthy"];
  if (fields["version"] !== version || !Array.isArray(list) || list.length > most.backends)
    return undefined;
  return readable(() => list.map((each) => backendIn(each)));
}

function backendIn(value: unknown): UnhealthyBackend {
  if (typeof value !== "object" || value === null) throw unreadable();
  const { service, address, port, why } = value as Readonly<Record<string, unknown>>;
  if (typeof service !== "string" || typeof address !== "string") throw unreadable();
  if (typeof port !== "number" || !Number.isInteger(port) || port < 1 || port > 65_535)
    throw unreadable();
  if (typeof why !== "string" || why.length > most.why) throw unreadable();
  return { service: parseServiceName(service), address: parseIp(address), port, why };
}
