import type { PortSpec } from "../../api/pod-spec.ts";
import { bindAddresses } from "../../api/validate/ports.ts";
import { type Ip, parseIp } from "../../core/address.ts";
import { boundSockets } from "../../linux/sockets/listeners.ts";
import { isLocalAddress } from "../../linux/sockets/local-address.ts";
import { type PortRange, parsePortRange } from "../../linux/sockets/port-range.ts";
import { readSysctl } from "../../linux/sysctl.ts";
import type { Config } from "../config/config.ts";
import type { Database } from "../store/database.ts";
import { takenPorts } from "./store.ts";
import type { PortsSnapshot } from "./ports-snapshot.ts";

export interface PortsWorld {
  readonly db: Database;
  readonly config: Pick<Config, "disableIptables" | "publishPorts">;
  randomBytes(count: number): Uint8Array;
}

/** Looks at everything that the planner needs to know to publish these. Takes nothing. */
export function gatherPorts(
  specs: readonly PortSpec[],
  { db, config, randomBytes }: PortsWorld,
): PortsSnapshot {
  const chosen = specs.filter(({ hostPort }) => hostPort === 0);
  const named = specs.filter(({ hostPort }) => hostPort !== 0);
  const choosing = new Set(chosen.map(({ protocol }) => protocol));
  const addresses = new Set(specs.flatMap(bindAddresses));
  const [high = 0, low = 0] = chosen.length === 0 ? [] : randomBytes(2);
  return {
    taken: [
      ...[...choosing].flatMap((protocol) => takenPorts(db, protocol)),
      ...named.flatMap((spec) => takenPorts(db, spec.protocol, spec)),
    ],
    range: chosen.length === 0 ? noPorts : (config.publishPorts ?? localPorts()),
    start: (high << 8) | low,
    bound: boundSockets([...choosing].filter((protocol) => protocol !== "sctp")).flatMap(
      ({ protocol, address, port }) =>
        coveredBy(address).map((hostIp) => ({ protocol, hostIp, hostPort: port })),
    ),
    hostAddresses: Object.fromEntries([...addresses].map((ip) => [ip, isLocalAddress(ip)])),
    firewall: !config.disableIptables,
  };
}

const noPorts: PortRange = { first: 1, last: 0 };

const localPorts = (): PortRange => parsePortRange(readSysctl("net.ipv4.ip_local_port_range"));

/**
 * A socket at `::` usually takes IPv4 as well, and the kernel does not report a socket that does
 * not.
 */
const coveredBy = (address: Ip): Ip[] =>
  address === "::" ? [address, parseIp("0.0.0.0")] : [address];
