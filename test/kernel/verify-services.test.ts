/**
 * Services are podnet's; where they lead is read by a program that knows nothing of podnet, and by
 * nft.
 */
import test from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { Check } from "../../daemon/verify/check.ts";
import { hearServices } from "../../daemon/verify/query-guard-source.ts";
import { compareServices } from "../../daemon/verify/services/compare-services.ts";
import { run } from "../../linux/processes/command.ts";
import type { BackendDesired, ServiceDesired } from "../../network/model/service.ts";
import { dualNetwork, FirewallSite } from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const backend = (address: string, weight = 1): BackendDesired => ({
  address: address as Ip,
  port: 8080,
  weight,
});
const service = (
  name: string,
  number: number,
  protocol: "tcp" | "udp" | "sctp",
  backends: readonly BackendDesired[],
  more: Partial<ServiceDesired> = {},
): ServiceDesired => ({
  name,
  network: "default",
  bridge: "hyper0" as IfName,
  subnets: ["192.168.123.0/24" as Cidr, "fd00:123::/64" as Cidr],
  addresses: [`10.96.0.${number}` as Ip, `fd00:96::${number}` as Ip],
  ports: [{ number, protocol, port: 80, backends }],
  ...more,
});
const differing = (checks: readonly Check[]): string[] =>
  checks.filter(({ ok }) => !ok).map((c) => `${c.subject}: ${c.found} instead of ${c.wanted}`);

test.serial(
  "an independent source reads where services lead, and that drift is repaired",
  async (t) => {
    t.timeout(60_000);
    await using site = await FirewallSite.open({ firewall: "nftables", iptables: "auto" });
    await site.ensure(dualNetwork());
    const many = Array.from({ length: 30 }, (_, i) => backend(`192.168.123.${i + 2}`));
    const services = [
      service("web", 1, "tcp", [
        backend("192.168.123.2", 3),
        backend("192.168.123.3"),
        backend("192.168.123.4", 0),
        backend("fd00:123::2"),
      ]),
      service("dns", 2, "udp", many),
      service("tel", 3, "sctp", [backend("192.168.123.9"), backend("fd00:123::9")]),
      service("shop", 4, "tcp", many.slice(0, 3), { sticky: true }),
      service("none", 5, "tcp", []),
    ];
    await site.host.apply({ kind: "services", now: () => services, pods: () => [] }, signal);
    const look = async (): Promise<Check[]> => {
      const report = await hearServices(signal);
      return report === undefined ? [] : compareServices(services, report);
    };
    const checks = await look();
    t.is(checks.length, 10);
    t.deepEqual(differing(checks), []);
    t.is(checks[0]?.found, "192.168.123.2 port 8080 75.0 %, 192.168.123.3 port 8080 25.0 %");
    // Others take a slot, a port, and what asks for services.
    const nft = (...words: string[]) => run(["nft", ...words]);
    const slot = (0x40000).toString();
    await nft("delete", "element", "inet", "podnet_services", "tcp4", `{ ${slot} }`);
    t.regex(differing(await look()).join(), /^service web 80\/tcp at 10\.96\.0\.1.*no slot/);
    await site.host.inspectServices(
      () => services,
      () => true,
      signal,
    );
    t.deepEqual(differing(await look()), [], "repaired");
    await nft("flush", "map", "inet", "podnet_services", "services6");
    t.regex(differing(await look()).join(), /fd00:96::1 on hyper0 leads to: nothing instead of/);
    await nft("flush", "chain", "inet", "podnet_services", "prerouting");
    t.is(differing(await look()).length, 6, "IPv4 is not asked for any more");
    await site.host.inspectServices(
      () => services,
      () => true,
      signal,
    );
    t.deepEqual(differing(await look()), [], "repaired");
    await nft("delete", "table", "inet", "podnet_services");
    t.is(differing(await look()).length, 6);
  },
);
