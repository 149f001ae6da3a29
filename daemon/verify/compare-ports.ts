import { familyOf, isLoopback } from "../../core/address.ts";
import type { PublishedDesired } from "../../network/model/desired.ts";
import type { PublishedPlan } from "../published/published-plan.ts";
import { absent, type Check, checker } from "./check.ts";
import type { RulesReport, SocketsReport } from "./source-reports.ts";

/** Who reads the rules that there are. */
export type RulesSource = "iptables-save" | "nft";

/**
 * Compares the desired rules for a pod's published ports with those that an independent check has
 * read. Pure.
 */
export function compareRules(
  published: readonly PublishedDesired[],
  source: RulesSource,
  rules: RulesReport,
): Check[] {
  const check = checker(source);
  return published.flatMap((each) => {
    const { protocol, hostIp, hostPort, podIp, podPort, count, subnet, bridge } = each;
    const nth = Array.from({ length: count }, (_, i) => i);
    const place = `${hostIp ?? `every IPv${familyOf(podIp)} address`} port ${portsText(hostPort, count)}/${protocol}`;
    const leads = nth.map((i) => {
      const port = hostPort + i;
      const by = rules.translations.find(
        (one) =>
          one.protocol === protocol &&
          one.hostIp === hostIp &&
          familyText(one.podIp) === familyText(podIp) &&
          one.first <= port &&
          port <= one.last,
      );
      return by === undefined ? undefined : leadText(by.podIp, by.podPort + port - by.first);
    });
    const strange = nth.find((i) => leads[i] !== leadText(podIp, podPort + i));
    const opened = nth.every((i) =>
      rules.opened.some(
        (one) =>
          one.protocol === protocol &&
          one.podIp === podIp &&
          one.mark === undefined &&
          (one.bridge === undefined || one.bridge === bridge) &&
          one.first <= podPort + i &&
          podPort + i <= one.last,
      ),
    );
    const answered = rules.hairpins.some(
      (one) =>
        one.subnet === subnet &&
        one.bridge === bridge &&
        (one.podIp === undefined || one.podIp === podIp),
    );
    const to = leadText(podIp, podPort, count);
    return [
      strange === undefined
        ? check(`${place} leads to`, to, to)
        : check(`${place} leads to`, to, leads[strange] ?? absent),
      check(`${to}/${protocol} let in`, true, opened),
      check(`${to}/${protocol} answers ${subnet} by the host`, true, answered),
    ];
  });
}

/** The sockets that hold what a pod has published, next to those that a source has seen. Pure. */
export function compareSockets(
  published: readonly PublishedPlan[],
  { sockets }: SocketsReport,
): Check[] {
  const check = checker("proc");
  return published.flatMap(({ protocol, hostPort, count, at }) => {
    // There are no SCTP sockets here: rules alone lead there.
    if (protocol === "sctp") return [];
    return at.map(({ hostIp }) => {
      const states = Array.from({ length: count }, (_, i) => {
        const found = sockets.filter(
          (one) => one.protocol === protocol && one.ip === hostIp && one.port === hostPort + i,
        );
        return found.some(({ own }) => own) ? "podnetd" : found.length > 0 ? "another" : absent;
      });
      const place = `${hostIp} port ${portsText(hostPort, count)}/${protocol}`;
      const what = isLoopback(hostIp) ? "forwarded by" : "held by";
      const found = states.find((state) => state !== "podnetd") ?? "podnetd";
      return check(`${place} ${what}`, "podnetd", found);
    });
  });
}

/** The family of an address that a source has reported. */
export const familyText = (ip: string): "4" | "6" => (ip.includes(":") ? "6" : "4");

const portsText = (first: number, count: number): string =>
  count === 1 ? `${first}` : `${first}-${first + count - 1}`;

const leadText = (ip: string, port: number, count = 1): string =>
  `${ip} port ${portsText(port, count)}`;
