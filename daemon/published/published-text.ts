import { portText } from "../../api/port-text.ts";
import { isLoopback } from "../../core/address.ts";
import type { PublishedPlan } from "./published-plan.ts";

/** `*:8080:80`, with the port that was chosen. */
export const publishedText = (port: PublishedPlan): string =>
  portText({ ...port, hostIp: port.hostIp ?? "" });

/** The sockets that hold a pod's host ports, as a part of its plan. */
export const holdSection = (published: readonly PublishedPlan[]) => ({
  step: "publish.hold",
  title: "Host ports, held by sockets of podnetd's",
  lines: published.flatMap(holdLines),
});

/** The text for ports that are no longer published. */
export const releaseSection = (published: readonly PublishedPlan[]) => ({
  step: "publish.hold",
  title: "Host ports, let go of",
  lines: published.flatMap(({ protocol, hostPort, count, at }) =>
    protocol === "sctp"
      ? []
      : at.map(({ hostIp }) => `let go of ${protocol} ${socketText(hostIp, hostPort, count)}`),
  ),
});

function holdLines({ protocol, hostPort, podPort, count, at }: PublishedPlan): string[] {
  return at.map(({ hostIp, podIp }) => {
    const host = socketText(hostIp, hostPort, count);
    const pod = socketText(podIp, podPort, count);
    if (protocol === "sctp") return `sctp ${host} to ${pod} by rules alone: no socket holds it`;
    const every = hostIp === "0.0.0.0" || hostIp === "::";
    const forwarded = isLoopback(hostIp) || every ? `, on loopback forwarded to ${pod}` : "";
    return `hold ${protocol} ${host}${forwarded}`;
  });
}

function socketText(ip: string, first: number, count: number): string {
  const address = ip.includes(":") ? `[${ip}]` : ip;
  return `${address}:${count === 1 ? first : `${first}-${first + count - 1}`}`;
}
