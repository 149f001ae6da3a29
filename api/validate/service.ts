import { familyOf, type Ip, isIp, parseIp } from "../../core/address.ts";
import {
  type NetworkName,
  parseNetworkName,
  parsePodName,
  parseServiceName,
  printable,
} from "../../core/names.ts";
import { isUnroutable } from "../../core/special-addresses.ts";
import { checkCount, invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/service_service_pb.ts";
import type {
  BackendChange,
  BackendCheck,
  BackendSpec,
  ServicePortSpec,
  ServiceSpec,
} from "../service-spec.ts";
import { validateLabels } from "./validate.ts";

const most = { ports: 32, backends: 1024, weight: 100 } as const;
const protocols = ["tcp", "udp", "sctp"] as const;

/**
 * Checks a service that is to be made, or what one is to become. `field` of an error is the path
 * within the spec.
 */
export function validateService(
  spec: wire.ServiceSpec | undefined,
  defaults: { readonly network: NetworkName },
): ServiceSpec {
  if (spec === undefined)
    throw invalid("spec", "No service is described", "Give its name and a port");
  const { network } = spec;
  const select = validateLabels(spec.select, "select");
  const ports = validatePorts(spec.ports);
  return {
    name: parseServiceName(spec.name, "name"),
    network: network === "" ? defaults.network : parseNetworkName(network, "network"),
    addresses: validateAddresses(spec.addresses),
    ports,
    backends: validateBackends(spec.backends, ports.length),
    ...(Object.keys(select).length === 0 ? {} : { select }),
    ...validateAffinity(spec.affinity),
    ...validateCheck(spec.check, ports),
    ...validateScope(spec.scope),
  };
}

function validateScope(scope: string): Pick<ServiceSpec, "scope"> {
  if (scope === "" || scope === "host") return {};
  if (scope === "overlay") return { scope };
  throw invalid(
    "scope",
    `A service has no scope "${printable(scope)}"`,
    "Use overlay, host, or leave it out",
  );
}

function validateAffinity(affinity: string): Pick<ServiceSpec, "affinity"> {
  if (affinity === "") return {};
  if (affinity === "client") return { affinity };
  throw invalid(
    "affinity",
    `A service has no affinity "${printable(affinity)}"`,
    "Use client, or leave it out",
  );
}

/** Checks a change of single backends. `checkBackends` checks what comes of it. */
export function validateBackendChange({
  set,
  remove,
}: Pick<wire.ChangeBackendsRequest, "set" | "remove">): BackendChange {
  if (set.length + remove.length === 0)
    throw invalid("set", "No change is asked for", "Name a backend to set or to remove");
  checkCount(remove, most.backends, "remove");
  return {
    set: validateBackends(set, 1, "set"),
    remove: remove.map((text, i) =>
      isIp(text) ? parseIp(text, `remove[${i}]`) : parsePodName(text, `remove[${i}]`),
    ),
  };
}

/** Refuses what no service may have: too many, or ports of their own where it has several. */
export function checkBackends(
  backends: readonly BackendSpec[],
  ports: number,
  field: string,
): void {
  checkCount(backends, most.backends, field);
  if (ports > 1 && backends.some(({ port }) => port !== undefined)) throw ownPort(field);
}

function validateAddresses(texts: readonly string[]): Ip[] {
  checkCount(texts, 2, "addresses");
  const addresses = texts.map((text, i) => parseIp(text, `addresses[${i}]`));
  const [first, second] = addresses;
  if (first !== undefined && second !== undefined && familyOf(first) === familyOf(second))
    throw invalid(
      "addresses[1]",
      `Both addresses are of IPv${familyOf(first)}`,
      "A service has at most one address of each family: make another service",
    );
  return addresses.toSorted((a, b) => familyOf(a) - familyOf(b));
}

function validatePorts(ports: readonly wire.ServicePort[]): ServicePortSpec[] {
  if (ports.length === 0)
    throw invalid("ports", "A service needs a port", "Give one, such as 80 or 80:8080");
  checkCount(ports, most.ports, "ports");
  const specs = ports.map((port, i) => validatePort(port, `ports[${i}]`));
  for (const [i, { protocol, port }] of specs.entries()) {
    const first = specs.findIndex((each) => each.protocol === protocol && each.port === port);
    if (first < i)
      throw invalid(
        `ports[${i}]`,
        `Port ${port}/${protocol} is there twice: ports[${first}] is the same`,
        "Give each port and protocol once",
      );
  }
  return specs;
}

function validatePort(asked: wire.ServicePort, field: string): ServicePortSpec {
  const protocol = protocols.find((each) => each === (asked.protocol || "tcp"));
  if (protocol === undefined)
    throw invalid(
      `${field}.protocol`,
      `A service cannot have protocol "${printable(asked.protocol)}"`,
      "Use tcp, udp or sctp",
    );
  const port = checkPort(asked.port, `${field}.port`);
  const { targetPort } = asked;
  const target = targetPort === 0 ? port : checkPort(targetPort, `${field}.target_port`);
  return { protocol, port, target };
}

function checkPort(port: number, field: string): number {
  if (port >= 1 && port <= 65_535) return port;
  throw invalid(field, `${port} is not a port`, "Use 1 to 65535");
}

function validateBackends(
  backends: readonly wire.ServiceBackend[],
  ports: number,
  field = "backends",
): BackendSpec[] {
  checkCount(backends, most.backends, field);
  const specs = backends.map((each, i) => validateBackend(each, `${field}[${i}]`, ports));
  const seen = new Map<string, number>();
  for (const [i, { pod, address }] of specs.entries()) {
    const first = seen.get(pod ?? address);
    if (first !== undefined)
      throw invalid(
        `${field}[${i}]`,
        `Backend "${pod ?? address}" is there twice: ${field}[${first}] is the same`,
        "Give each backend once, with a weight if it is to get more connections",
      );
    seen.set(pod ?? address, i);
  }
  return specs;
}

function validateBackend(asked: wire.ServiceBackend, field: string, ports: number): BackendSpec {
  const { pod, address, weight = 1, port } = asked;
  if ((pod === "") === (address === ""))
    throw invalid(field, "A backend is either a pod or an address", "Give one of pod and address");
  if (weight > most.weight)
    throw invalid(
      `${field}.weight`,
      `Weight ${weight} is too large`,
      `Use 0 to ${most.weight}; 0 gives it no new connections`,
    );
  if (port !== 0 && ports > 1) throw ownPort(`${field}.port`);
  const rest = { weight, ...(port === 0 ? {} : { port: checkPort(port, `${field}.port`) }) };
  if (pod !== "") return { pod: parsePodName(pod, `${field}.pod`), ...rest };
  const ip = parseIp(address, `${field}.address`);
  if (isUnroutable(ip))
    throw invalid(
      `${field}.address`,
      `${ip} cannot be a backend: no packet is routed there`,
      "Give an address of one machine, neither loopback nor link-local nor multicast",
    );
  return { address: ip, ...rest };
}

const ownPort = (field: string): Error =>
  invalid(
    field,
    "A backend has a port of its own only where the service has one port",
    "Leave it out, or make a service for each port",
  );

/** What a check may be, and is unless said. */
const bounds = {
  intervalS: { field: "interval_s", usual: 10, most: 3600, unit: " seconds" },
  timeoutS: { field: "timeout_s", usual: 2, most: 60, unit: " seconds" },
  rise: { field: "rise", usual: 2, most: 10, unit: " answers" },
  fall: { field: "fall", usual: 3, most: 10, unit: " answers" },
} as const;

/** A path of HTTP, with a query: nothing of it ends the line or the header. */
const path = /^\/[!-~]{0,255}$/;

/** Checks how backends of a service with these ports are to be asked. */
function validateCheck(
  asked: wire.BackendCheck | undefined,
  ports: readonly ServicePortSpec[],
): Pick<ServiceSpec, "check"> {
  if (asked === undefined) return {};
  if (asked.path !== "" && !path.test(asked.path))
    throw invalid(
      "check.path",
      `"${printable(asked.path)}" is not a path of HTTP`,
      "Give one such as /healthz: at most 256 ASCII characters without spaces",
    );
  if (asked.port > 65_535)
    throw invalid("check.port", `${asked.port} is not a port`, "Use 1 to 65535");
  if (asked.port === 0 && !ports.some(({ protocol }) => protocol === "tcp"))
    throw invalid(
      "check.port",
      "The service has no TCP port by which its backends could be asked",
      "Give the check a TCP port of the backends, or leave it out",
    );
  const [intervalS, timeoutS] = [bounded(asked, "intervalS"), bounded(asked, "timeoutS")];
  const check: BackendCheck = {
    ...(asked.path !== "" && { path: asked.path }),
    ...(asked.port !== 0 && { port: asked.port }),
    intervalS,
    timeoutS,
    rise: bounded(asked, "rise"),
    fall: bounded(asked, "fall"),
  };
  return { check };
}

function bounded(asked: wire.BackendCheck, key: keyof typeof bounds): number {
  const { field, usual, most, unit } = bounds[key];
  const value = asked[key];
  if (value > most)
    throw invalid(`check.${field}`, `${value}${unit} are too many`, `Use 1 to ${most}`);
  return value === 0 ? usual : value;
}
