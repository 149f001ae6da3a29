import test from "ava";
import { IptablesDriver } from "../../../../network/firewall/iptables/driver.ts";
import { mainTable } from "../../../../network/firewall/nftables/base.ts";
import { NftablesDriver } from "../../../../network/firewall/nftables/driver.ts";
import type { FirewallDriver } from "../../../../network/firewall/driver.ts";
import { podFragment, publishedPort } from "../../../lab/network.ts";

// The text of a publish's plan: by drivers that can look at nothing.
const iptables = new IptablesDriver({ configured: "nft", chain: "HYPER" } as never);
const nftables = new NftablesDriver({ table: { model: mainTable } } as never);

const web = publishedPort();
const also = publishedPort({ hostPort: 8081 });
const names = publishedPort({ protocol: "udp", hostPort: 53, podPort: 53, count: 2 });
const pod = podFragment(2);
const reported = (driver: FirewallDriver, before: object[], after: object[]): readonly string[] =>
  driver.describeChange(
    { ...pod, published: before as never },
    { ...pod, published: after as never },
  );
const mark = `-m comment --comment podnet:pod:${pod.key}`;
const comment = `comment "podnet:pod:${pod.key}"`;

test("publishing one more reports its rules alone, in iptables' words", (t) => {
  t.deepEqual(reported(iptables, [web], [web, also]), [
    `iptables nat -A HYPER -p tcp -m tcp --dport 8081 ${mark} -j DNAT --to-destination 192.168.123.2:80`,
  ]);
  t.deepEqual(reported(iptables, [web, also], [also]), [
    `iptables nat -D HYPER -p tcp -m tcp --dport 8080 ${mark} -j DNAT --to-destination 192.168.123.2:80`,
  ]);
  t.deepEqual(reported(iptables, [web, also], [web, also]), []);
  t.is(reported(iptables, [], [web]).length, 3);
});

test("publishing one more reports its elements alone, in nft's words", (t) => {
  t.deepEqual(reported(nftables, [web], [web, also]), [
    `nft create element inet podnet everywhere4 { tcp . 8081 ${comment} : 192.168.123.2 . 80 }`,
  ]);
  t.deepEqual(reported(nftables, [web, also], [also]), [
    "nft delete element inet podnet everywhere4 { tcp . 8080 }",
  ]);
  t.deepEqual(reported(nftables, [web, names], [web]), [
    "nft delete element inet podnet everywhere4 { udp . 53, udp . 54 }",
    "nft delete element inet podnet opened4 { udp . 192.168.123.2 . 53, udp . 192.168.123.2 . 54 }",
  ]);
  t.deepEqual(reported(nftables, [web], [web]), []);
});
