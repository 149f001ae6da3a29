import { familyOf, type Ip, isLoopback, parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import { checkCount, invalid } from "../fields.ts";
import type { PortSpec } from "../pod-spec.ts";

/** Entries of one pod or request. */
const maxEntries = 64;
/** Ports of one entry, and of all of a pod's: each is a socket or two of podnetd's. */
export const maxPorts = 4096;

const protocols = ["tcp", "udp", "sctp"] as const;

/** Checks published ports one by one and against each other. */
export function validatePorts(
  ports: readonly wire.PublishedPort[],
  field = "ports",
): readonly PortSpec[] {
  checkCount(ports, maxEntries, field);
  const specs = ports.map((port, i) => validatePort(port, `${field}[${i}]`));
  checkPortCount(specs, field);
  refuseOverlap(specs, field);
  return specs;
}

/** Refuses more entries or ports than one pod may publish. */
export function checkPortCount(specs: readonly PortSpec[], field: string): void {
  checkCount(specs, maxEntries, field);
  const all = specs.reduce((sum, { count }) => sum + count, 0);
  if (all > maxPorts)
    throw invalid(
      field,
      `${all} published ports are too many`,
      `Publish at most ${maxPorts} of a pod or container`,
    );
}

/** Refuses two entries of one request that could not both be had. */
function refuseOverlap(specs: readonly PortSpec[], field: string): void {
  specs.forEach((spec, i) => {
    const other = specs.findIndex((each, j) => j < i && overlap(each, spec));
    if (other < 0) return;
    throw invalid(
      `${field}[${i}]`,
      `${field}[${other}] publishes at the same address, port and protocol`,
      "Give each its own host port, or 0 to have one chosen",
    );
  });
}

/** The addresses a spec is about, with `0.0.0.0` and `::` for every one of a family. */
export function bindAddresses({ hostIp }: Pick<PortSpec, "hostIp">): readonly Ip[] {
  if (hostIp === undefined) return [parseIp("127.0.0.1"), parseIp("::1")];
  return hostIp === "*" ? [parseIp("0.0.0.0"), parseIp("::")] : [hostIp];
}

/** Whether two addresses sockets are bound to have one in common. */
export function sameAddress(a: Ip, b: Ip): boolean {
  if (familyOf(a) !== familyOf(b)) return false;
  const every = familyOf(a) === 4 ? "0.0.0.0" : "::";
  return a === b || a === every || b === every;
}

function overlap(a: PortSpec, b: PortSpec): boolean {
  if (a.protocol !== b.protocol || a.hostPort === 0 || b.hostPort === 0) return false;
  if (a.hostPort >= b.hostPort + b.count || b.hostPort >= a.hostPort + a.count) return false;
  return bindAddresses(a).some((one) => bindAddresses(b).some((other) => sameAddress(one, other)));
}

function validatePort(port: wire.PublishedPort, field: string): PortSpec {
  const { count = 1 } = port;
  const protocol = protocols.find((each) => each === (port.protocol || "tcp"));
  if (protocol === undefined) {
    throw invalid(
      `${field}.protocol`,
      `Protocol "${printable(port.protocol)}" cannot be published`,
      "Use tcp, udp or sctp",
    );
  }
  if (count < 1 || count > maxPorts)
    throw invalid(`${field}.count`, `A range has no ${count} ports`, `Use 1 to ${maxPorts}`);
  checkRange(port.podPort, count, `${field}.pod_port`);
  if (port.hostPort !== 0) checkRange(port.hostPort, count, `${field}.host_port`);
  const hostIp = port.hostIp === "" ? undefined : parseHostIp(port.hostIp, `${field}.host_ip`);
  if (protocol === "sctp" && (hostIp === undefined || (hostIp !== "*" && isLoopback(hostIp)))) {
    throw new PodnetError("UNSUPPORTED", "SCTP cannot be published on loopback", {
      field: `${field}.host_ip`,
      hint: "Ports on loopback are TCP or UDP only; give an address of the host, or *",
    });
  }
  const where = hostIp === undefined ? {} : { hostIp };
  return { ...where, hostPort: port.hostPort, podPort: port.podPort, count, protocol };
}

function checkRange(first: number, count: number, field: string): void {
  if (first >= 1 && first + count - 1 <= 65_535) return;
  const what = count === 1 ? `Port ${first} is` : `Ports ${first} to ${first + count - 1} are`;
  throw invalid(field, `${what} out of range`, "Use 1 to 65535");
}

function parseHostIp(text: string, field: string): Ip | "*" {
  if (text === "*") return text;
  const ip = parseIp(text, field);
  const six = familyOf(ip) === 6;
  if (
    six ? /^(?:ff|fe80:|::ffff:)/.test(ip) : /^(?:2(?:2[4-9]|[345]\d)\.|0\.(?!0\.0\.0$))/.test(ip)
  ) {
    throw new PodnetError("ADDRESS_INVALID", `Nothing can be published at ${ip}`, {
      field,
      hint: "Give an address of the host that needs no zone, 0.0.0.0, :: or *; or leave it out, for the host only",
    });
  }
  return ip;
}
