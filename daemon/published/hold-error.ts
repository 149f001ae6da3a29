import { sameAddress } from "../../api/validate/ports.ts";
import { type Ip, parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type BoundSocket, boundSockets, holderOf } from "../../linux/sockets/listeners.ts";
import { tcpListeners } from "../../linux/sockets/tcp-listeners.ts";
import type { PublishedPlan } from "./published-plan.ts";
import type { PortAt } from "./held-port.ts";
import { portsOf } from "./wanted-port.ts";

/** Why a host port cannot be held. */
export function holdError(port: PortAt, thrown: unknown): PodnetError {
  if (thrown instanceof PodnetError) return thrown;
  const { protocol, hostIp, hostPort } = port;
  const what = `Host port ${hostPort}/${protocol} at ${hostIp}`;
  const { code } = thrown as NodeJS.ErrnoException;
  switch (code) {
    case "EADDRINUSE":
      return inUse(port, programAt(port) ?? "another program").with({ cause: thrown });
    case "EADDRNOTAVAIL":
    case "EAFNOSUPPORT":
      return new PodnetError("ADDRESS_INVALID", `This host has no address ${hostIp}`, {
        hint: "Give it the address, or publish at another",
        cause: thrown,
      });
    case "EACCES":
      return new PodnetError("PREFLIGHT_FAILED", `${what} needs a privilege that podnetd lacks`, {
        hint: "Give podnetd CAP_NET_BIND_SERVICE, or lower net.ipv4.ip_unprivileged_port_start",
        cause: thrown,
      });
    default:
      return new PodnetError(
        "SYSCALL_FAILED",
        `${what} cannot be held: ${code ?? String(thrown)}`,
        {
          hint: "See whether podnetd may open more files (LimitNOFILE=)",
          cause: thrown,
        },
      );
  }
}

/** The field of the request that asks for a port, as errors of the planner name it. */
export const fieldOf = (position: number): string => `ports[${position}].host_port`;

/**
 * The program that has a port, for people; undefined where /proc does not show it, as for sockets
 * that are bound and do not listen.
 */
function programAt(port: PortAt): string | undefined {
  const there = boundSockets([port.protocol]).filter((each) => isAt(each, port));
  const by = there.find(({ listens }) => listens) ?? there[0];
  return by === undefined ? undefined : holderOf(by);
}

/** Throws `PORT_IN_USE` when a program has one of these ports, as `hold` would. */
export function refuseBusy(published: readonly PublishedPlan[]): void {
  const wanted = portsOf(published);
  const there = [...listenersOf(wanted), ...(wanted.some(isUdp) ? receivers() : [])];
  for (const [i, entry] of published.entries())
    for (const port of portsOf([entry])) {
      const by = there.find((each) => isAt(each, port));
      if (by !== undefined) throw inUse(port, holderOf(by)).with({ field: fieldOf(i) });
    }
}

const isUdp = ({ protocol }: PortAt): boolean => protocol === "udp";
const receivers = (): BoundSocket[] => boundSockets(["udp"]).filter(({ listens }) => listens);

/** Sockets of programs that listen at one of these ports. */
function listenersOf(wanted: readonly PortAt[]): BoundSocket[] {
  const ports = new Set(wanted.flatMap((each) => (isUdp(each) ? [] : each.hostPort)));
  const [first] = ports;
  if (first === undefined) return [];
  return ports.size === 1 ? tcpListeners(first) : tcpListeners();
}

const isAt = (socket: BoundSocket, { protocol, hostIp, hostPort }: PortAt): boolean =>
  socket.protocol === protocol && socket.port === hostPort && covers(socket.address, hostIp);

function inUse({ protocol, hostIp, hostPort }: PortAt, holder: string): PodnetError {
  const what = `Host port ${hostPort}/${protocol} at ${hostIp}`;
  return new PodnetError("PORT_IN_USE", `${what} is taken by ${holder}`, {
    hint: "End that program or choose another host port; for a pod 0 has one chosen",
    details: { holder, port: hostPort },
  });
}

/** A socket at `::` may take IPv4 as well, and one at every IPv4 address keeps such a one away. */
const covers = (address: Ip, hostIp: Ip): boolean =>
  sameAddress(address, hostIp) ||
  (address === "::" && sameAddress(parseIp("0.0.0.0"), hostIp)) ||
  (hostIp === "::" && sameAddress(address, parseIp("0.0.0.0")));
