import { familyOf, type Ip, ipOf } from "../../core/address.ts";
import type { PodName } from "../../core/names.ts";
import type { ServiceDesired } from "../../network/model/service.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { listAttachments } from "../containers/store.ts";
import { staying } from "../pods/store/pod-plan.ts";
import { listPodsWithMachine } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import { networkOfAddress } from "./plan-service.ts";
import type { ServiceDefinition } from "./store.ts";

/** A pod or container that runs, as far as services look at it. */
export interface Candidate {
  /** Of a pod of another host. */
  readonly host?: RemoteHostOf;
  readonly kind: "pod" | "container";
  /** The pod's name; of a container what people call it. */
  readonly shown: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Its addresses, by network. */
  readonly addresses: readonly { readonly network: string; readonly ip: Ip }[];
}

/** Another host, by the id of its records and its name. */
interface RemoteHostOf {
  readonly id: string;
  readonly name: string;
}

/** A backend that is there. */
export interface Endpoint {
  /** Of a pod of another host. */
  readonly host?: RemoteHostOf;
  readonly pod?: PodName;
  readonly container?: string;
  readonly address: Ip;
  readonly weight: number;
  /** In place of the target of the service's one port. */
  readonly port?: number;
  /** Where backends are asked. */
  readonly health?: "healthy" | "unhealthy" | "unknown";
  readonly healthReason?: string;
}

/** The pods and containers that run. A paused pod does not answer. */
export const listCandidates = (db: Database): readonly Candidate[] => [
  ...listPodsWithMachine(db)
    .filter(({ state }) => state === "running")
    .map(
      ({ name, spec, plan }): Candidate => ({
        kind: "pod",
        shown: name,
        labels: spec.labels,
        addresses: staying(plan.interfaces).flatMap(({ network, addresses }) =>
          network === undefined ? [] : addresses.map((each) => ({ network, ip: ipOf(each) })),
        ),
      }),
    ),
  ...listAttachments(db)
    .filter(({ state }) => state === "ready")
    .map(
      ({ plan: { pod, containerId, labels = {}, network, addresses } }): Candidate => ({
        kind: "container",
        shown: pod ?? containerId,
        labels,
        addresses: addresses.map((each) => ({ network, ip: ipOf(each) })),
      }),
    ),
];

/**
 * Where new connections to a service go. Pure. On an isolated network pods do not reach each other,
 * by a service either: there it leads outside alone.
 */
export function endpointsOf(
  { backends, select, network, addresses }: ServiceDefinition,
  candidates: readonly Candidate[],
  networks: readonly NetworkDefinition[],
): readonly Endpoint[] {
  const families = new Set(addresses.map(familyOf));
  const networkOf = networkOfAddress(networks);
  const outside = backends.flatMap(({ address, weight, port }): Endpoint[] =>
    // (A network may have come since it was asked for.)
    address === undefined || networkOf(address) !== undefined
      ? []
      : [{ address, weight, ...(port !== undefined && { port }) }],
  );
  const own = networks.find(({ name }) => name === network);
  if (own === undefined || own.isolated) return outside;
  const named = new Map(
    backends.flatMap((each) =>
      each.pod === undefined ? [] : [[each.pod as string, each] as const],
    ),
  );
  const inside = candidates.flatMap(({ kind, host, shown, labels, addresses: all }): Endpoint[] => {
    const given = kind === "pod" ? named.get(shown) : undefined;
    if (given === undefined && !hasLabels(labels, select)) return [];
    const { weight = 1, port } = given ?? {};
    const who = {
      ...(host && { host }),
      ...(kind === "pod" ? { pod: shown as PodName } : { container: shown }),
    };
    return all
      .filter((each) => each.network === network && families.has(familyOf(each.ip)))
      .map(({ ip }) => ({ ...who, address: ip, weight, ...(port !== undefined && { port }) }));
  });
  return [...inside, ...outside];
}

const hasLabels = (labels: Candidate["labels"], select: ServiceDefinition["select"]): boolean =>
  select !== undefined &&
  Object.entries(select).every(
    ([key, value]) => Object.hasOwn(labels, key) && labels[key] === value,
  );

/** A service as the host is to have it; undefined without its network. Pure. */
export function desiredService(
  { name, network, addresses, ports, affinity }: ServiceDefinition,
  endpoints: readonly Endpoint[],
  networks: readonly NetworkDefinition[],
): ServiceDesired | undefined {
  const own = networks.find((each) => each.name === network);
  if (own === undefined) return undefined;
  return {
    name,
    network,
    bridge: own.bridge,
    subnets: own.subnets.map(({ cidr }) => cidr),
    addresses,
    ...(affinity === "client" && { sticky: true }),
    ports: ports.map(({ number, protocol, port, target }) => ({
      number,
      protocol,
      port,
      backends: endpoints.map((each) => ({
        address: each.address,
        weight: weightNow(each, endpoints),
        port: each.port ?? target,
      })),
    })),
  };
}

/**
 * A backend that does not serve gets no new connections while another of its family does. Where
 * none does all get them, as before: a check that fails everywhere may be what is wrong. Pure.
 */
const weightNow = ({ address, weight, health }: Endpoint, all: readonly Endpoint[]): number =>
  health === "unhealthy" &&
  all.some((each) => isServing(each) && familyOf(each.address) === familyOf(address))
    ? 0
    : weight;

const isServing = ({ weight, health }: Endpoint): boolean => weight > 0 && health !== "unhealthy";

/** Where a backend is asked: the check's own port, the backend's, or the first of TCP. Pure. */
export const checkedPort = (
  { check, ports }: Pick<ServiceDefinition, "check" | "ports">,
  endpoint: Endpoint,
): number | undefined =>
  check?.port ?? endpoint.port ?? ports.find(({ protocol }) => protocol === "tcp")?.target;

/** What of a service is not as its user may expect, a sentence each. Pure. */
export function noticesOf(
  definition: ServiceDefinition,
  endpoints: readonly Endpoint[],
  networks: readonly NetworkDefinition[],
  overlay?: string,
): readonly string[] {
  const { name, backends, select, scope } = definition;
  const leadsToPods = select !== undefined || backends.some(({ pod }) => pod !== undefined);
  const alone =
    overlay !== undefined && scope === undefined && leadsToPods
      ? [`"${name}" is of this host alone: pods of other hosts are no backends of it`]
      : [];
  return [...alone, ...noticesOfBackends(definition, endpoints, networks)];
}

function noticesOfBackends(
  { name, backends, select, network, check }: ServiceDefinition,
  endpoints: readonly Endpoint[],
  networks: readonly NetworkDefinition[],
): readonly string[] {
  const own = networks.find((each) => each.name === network);
  if (own === undefined)
    return [`There is no network "${network}" any more: nothing reaches "${name}"`];
  if (endpoints.some(isServing)) return [];
  const all = "they get connections all the same";
  if (endpoints.some(({ weight }) => weight > 0))
    return [
      check === undefined
        ? `The hosts of all backends of "${name}" do not answer: ${all}`
        : `All backends of "${name}" fail its check: ${all}`,
    ];
  const refused = `connections to it are refused`;
  if (own.isolated)
    return [`Pods of isolated network "${network}" are no backends of "${name}": ${refused}`];
  if (endpoints.length > 0) return [`All backends of "${name}" have weight 0: ${refused}`];
  if (backends.length === 0 && select === undefined)
    return [`"${name}" names no backends: ${refused}`];
  return [`No backend of "${name}" runs on network "${network}": ${refused}`];
}
