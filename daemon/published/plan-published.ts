import type { PortSpec } from "../../api/pod-spec.ts";
import { bindAddresses, sameAddress } from "../../api/validate/ports.ts";
import {
  type Family,
  familyOf,
  type Ip,
  ipOf,
  type IpPrefix,
  isLoopback,
  networkOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";
import type { PublishedDesired } from "../../network/model/desired.ts";
import type { HostPorts, TakenPorts } from "./store.ts";
import { choosePort } from "./choose-port.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import { podWords, type PublishWords } from "./publish-words.ts";
import type { PublishedAt, PublishedPlan } from "./published-plan.ts";
import type { PortsSnapshot } from "./ports-snapshot.ts";

/** The properties of an interface that decide whether a published port can lead to it. */
export interface PublishingInterface {
  readonly guestName: string;
  /** Absent on a bridge or tap that is not podnet's, and on loopback. */
  readonly network?: NetworkName;
  /** Absent where the tap is not podnet's, and on loopback. */
  readonly bridge?: IfName;
  readonly addresses: readonly IpPrefix[];
  /** The interface has been removed. */
  readonly leaving?: true;
}

/** The pod's own part: interfaces, and the routes by which its answers go. */
export interface Publishing {
  readonly interfaces: readonly PublishingInterface[];
  readonly routes: GuestConfig["routes"];
}

/**
 * Decides host ports and the addresses that they lead to, for each entry. Refusals are worded for
 * pods unless other words are given. Throws `PORT_IN_USE`, `PORTS_EXHAUSTED`, `ADDRESS_INVALID`,
 * `UNSUPPORTED`.
 */
export function planPublished(
  specs: readonly PortSpec[],
  pod: Publishing,
  snapshot: PortsSnapshot | undefined,
  words = podWords,
): PublishedPlan[] {
  if (specs.length === 0) return [];
  if (snapshot === undefined) throw new RangeError("The snapshot knows nothing of ports");
  const mine = specs.flatMap((spec) =>
    spec.hostPort === 0 ? [] : portsAt(spec, bindAddresses(spec)),
  );
  return specs.map((spec, i) => {
    const field = words.entry(i);
    const at = leads(spec, pod, snapshot, words, field);
    const hostPort =
      spec.hostPort === 0
        ? choosePort({ ...spec, at }, snapshot, mine, field)
        : refuseTaken({ ...spec, at }, snapshot.taken, words, field);
    const addresses = at.map(({ hostIp }) => hostIp);
    mine.push(...portsAt({ ...spec, hostPort }, addresses));
    return { ...spec, hostPort, at };
  });
}

const portsAt = ({ protocol, hostPort, count }: PortSpec, addresses: readonly Ip[]): HostPorts[] =>
  addresses.map((hostIp) => ({ protocol, hostIp, hostPort, count }));

/** The published ports that the host's rules translate: all but those on loopback. */
export function publishedDesired(
  published: readonly PublishedPlan[],
  interfaces: readonly PublishingInterface[],
): PublishedDesired[] {
  return published.flatMap(({ protocol, hostPort, podPort, count, at }) =>
    at.flatMap(({ hostIp, podIp }) => {
      if (isLoopback(hostIp) || familyOf(hostIp) !== familyOf(podIp)) return [];
      const by = interfaces.find(({ addresses }) => addresses.some((each) => ipOf(each) === podIp));
      const address = by?.addresses.find((each) => ipOf(each) === podIp);
      if (by?.bridge === undefined || address === undefined) return [];
      const where = isEvery(hostIp) ? {} : { hostIp };
      const { bridge } = by;
      const subnet = networkOf(address);
      return [{ protocol, ...where, hostPort, podIp, podPort, count, bridge, subnet }];
    }),
  );
}

/** Whether an address stands for all addresses of its family. */
const isEvery = (ip: Ip): boolean => ip === "0.0.0.0" || ip === "::";

function leads(
  spec: PortSpec,
  pod: Publishing,
  { hostAddresses, firewall }: PortsSnapshot,
  words: PublishWords,
  field: string,
): PublishedAt[] {
  const { hostIp, protocol } = spec;
  const named = hostIp !== undefined && hostIp !== "*";
  const where = `${field}.${words.hostIp}`;
  if (!firewall && hostIp !== undefined && (hostIp === "*" || !isLoopback(hostIp))) {
    throw new PodnetError(
      "UNSUPPORTED",
      `Nothing can be published at ${hostIp} without firewall rules`,
      {
        field: where,
        hint: words.unfiltered,
      },
    );
  }
  if (named && hostAddresses[hostIp] !== true) {
    throw new PodnetError("ADDRESS_INVALID", `This host has no address ${hostIp}`, {
      field: where,
      hint: words.addresses,
    });
  }
  const of = { 4: podAddress(4, pod), 6: podAddress(6, pod) } as const;
  const at = bindAddresses(spec).flatMap((ip): PublishedAt[] => {
    // The host may be without IPv6, which matters only where it is asked for by name.
    if (hostAddresses[ip] !== true) return [];
    const family = familyOf(ip);
    // podnetd forwards loopback itself, to any address of the pod, but cannot forward SCTP.
    const served = isLoopback(ip) || (isEvery(ip) && !named && protocol !== "sctp");
    const podIp = of[family] ?? (served ? of[family === 4 ? 6 : 4] : undefined);
    return podIp === undefined ? [] : [{ hostIp: ip, podIp }];
  });
  if (at.length > 0) return at;
  const family = named && !isLoopback(hostIp) ? ` IPv${familyOf(hostIp)}` : "";
  throw new PodnetError(
    "UNSUPPORTED",
    `The ${words.publisher} has no${family} address on a network of podnet's`,
    { field, hint: words.family },
  );
}

/**
 * The pod's address of a family: of the interface its answers leave by, where there are several.
 */
function podAddress(family: Family, { interfaces, routes }: Publishing): Ip | undefined {
  const every = family === 4 ? "0.0.0.0/0" : "::/0";
  const byDefault = routes.find(({ destination }) => destination === every)?.interface;
  const of = interfaces.filter(
    ({ network, leaving, addresses }) =>
      network !== undefined &&
      leaving !== true &&
      addresses.some((each) => familyOf(each) === family),
  );
  const by = of.find(({ guestName }) => guestName === byDefault) ?? of[0];
  const address = by?.addresses.find((each) => familyOf(each) === family);
  return address === undefined ? undefined : ipOf(address);
}

/**
 * Throws `PORT_IN_USE` when a pod, this one included, or a container has one of the ports; returns
 * the first port.
 */
function refuseTaken(
  { protocol, hostPort, count, at }: PublishedPlan,
  taken: readonly TakenPorts[],
  words: PublishWords,
  field: string,
): number {
  const holder = taken.find(
    (each) =>
      each.protocol === protocol &&
      each.hostPort < hostPort + count &&
      hostPort < each.hostPort + each.count &&
      at.some(({ hostIp }) => sameAddress(hostIp, each.hostIp)),
  );
  if (holder === undefined) return hostPort;
  const port = Math.max(hostPort, holder.hostPort);
  throw new PodnetError(
    "PORT_IN_USE",
    `Host port ${port}/${protocol} at ${holder.hostIp} is published by ${holder.kind === "pod" ? "pod" : "container"} "${holder.name}"`,
    {
      field: `${field}.${words.hostPort}`,
      hint: `${words.otherPort}; see: ${holder.kind === "pod" ? `podnet ports ${holder.name}` : "podnet cni list"}`,
      details: { holder: holder.name, port },
    },
  );
}
