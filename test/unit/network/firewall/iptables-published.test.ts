import test from "ava";
import fc from "fast-check";
import type { Cidr, Ip } from "../../../../core/address.ts";
import { isPodnetError } from "../../../../core/errors.ts";
import type { IfName } from "../../../../core/names.ts";
import type { PodFragment, PublishedDesired } from "../../../../network/model/desired.ts";
import { diffPodsFirewall } from "../../../../network/firewall/iptables/diff-owners.ts";
import { restoreText } from "../../../../network/firewall/iptables/diff.ts";
import type { ObservedFirewall } from "../../../../network/firewall/iptables/firewall.ts";
import { publishedRules } from "../../../../network/firewall/iptables/published-rules.ts";
import { ruleText } from "../../../../network/firewall/iptables/rule.ts";
import { parseSave } from "../../../../network/firewall/iptables/save-format.ts";
import { Memory } from "../../../../network/kernel/memory.ts";
import { commitToText, emptyHost } from "../../../lab/iptables-model.ts";
import { podIdOf, publishedPort } from "../../../lab/network.ts";

const six = { podIp: "fd00:123::2" as Ip, subnet: "fd00:123::/64" as Cidr };

const pod = (n: number, ...published: PublishedDesired[]): PodFragment => ({
  kind: "pod",
  key: podIdOf(n),
  ports: [],
  published,
});

test("The rules of published ports, golden", (t) => {
  const texts = (family: 4 | 6, ...published: PublishedDesired[]): string[] =>
    publishedRules(pod(2, ...published), "HYPER", family).map((rule) =>
      ruleText(rule).replace("-m comment --comment podnet:pod:podaaaaaaaa2 ", ""),
    );
  t.deepEqual(texts(4, publishedPort(), publishedPort({ ...six })), [
    "nat -A HYPER -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.168.123.2:80",
    "nat -A POSTROUTING -s 192.168.123.0/24 -d 192.168.123.2/32 -o hyper0 -m conntrack --ctstate DNAT -j MASQUERADE",
    "filter -A HYPER -d 192.168.123.2/32 -p tcp -m tcp --dport 80 -m conntrack --ctstate DNAT -j ACCEPT",
  ]);
  const range = publishedPort({ ...six, protocol: "udp", hostPort: 9000, podPort: 7000, count: 3 });
  t.deepEqual(texts(6, publishedPort(), { ...range, hostIp: "2001:db8::1" as Ip }), [
    'nat -A HYPER -d 2001:db8::1/128 -p udp -m udp --dport 9000:9002 -j DNAT --to-destination "[fd00:123::2]:7000-7002/9000"',
    "nat -A POSTROUTING -s fd00:123::/64 -d fd00:123::2/128 -o hyper0 -m conntrack --ctstate DNAT -j MASQUERADE",
    "filter -A HYPER -d fd00:123::2/128 -p udp -m udp --dport 7000:7002 -m conntrack --ctstate DNAT -j ACCEPT",
  ]);
  t.is(
    texts(4, publishedPort({ protocol: "sctp", hostPort: 5000, podPort: 5000, count: 10 }))[0],
    "nat -A HYPER -p sctp -m sctp --dport 5000:5009 -j DNAT --to-destination 192.168.123.2",
    "ports that are the same on both sides are left alone",
  );
  t.deepEqual(texts(4), []);
});

test("A loopback port is redirected in OUTPUT, in the family of its address", (t) => {
  const at = (hostIp: string) =>
    ({ protocol: "udp", hostIp: hostIp as Ip, hostPort: 53, toPort: 40_000 }) as const;
  const both = { ...pod(2), loopback: [at("127.0.0.1"), at("::1")] };
  const texts = ([4, 6] as const).flatMap((family) =>
    publishedRules(both, "HYPER", family).map(ruleText),
  );
  const ours = "-m comment --comment podnet:pod:podaaaaaaaa2";
  t.deepEqual(texts, [
    `nat -A OUTPUT -d 127.0.0.1/32 -o lo -p udp -m udp --dport 53 ${ours} -j REDIRECT --to-ports 40000`,
    `nat -A OUTPUT -d ::1/128 -o lo -p udp -m udp --dport 53 ${ours} -j REDIRECT --to-ports 40000`,
  ]);
});

test("What several host ports have in common is said once; a bridge's name cannot be a wildcard", (t) => {
  const rules = publishedRules(
    pod(2, publishedPort(), publishedPort({ hostPort: 8081 })),
    "HYPER",
    4,
  );
  t.deepEqual(
    rules.map(({ table, chain }) => `${table} ${chain}`),
    ["nat HYPER", "nat POSTROUTING", "filter HYPER", "nat HYPER"],
  );
  const error = t.throws(() =>
    publishedRules(pod(2, publishedPort({ bridge: "br+" as IfName })), "HYPER", 4),
  );
  t.true(isPodnetError(error, "CONFIG_INVALID"));
});

const observed = (text: string): ObservedFirewall => ({
  family: 4,
  saved: { nft: parseSave(text), legacy: new Map() },
  systemDefault: "nft",
  incompatible: [],
});
const context = { configured: "nft", memory: new Memory("here").chains(4) } as const;
const look = (text: string, fragment: PodFragment): ReturnType<typeof diffPodsFirewall> =>
  diffPodsFirewall([fragment], "HYPER", observed(text), context);
const apply = (text: string, fragment: PodFragment): string =>
  look(text, fragment).reduce((host, edit) => commitToText(host, edit), text);

test("All that a pod publishes is one commit a table", (t) => {
  const edits = look(
    emptyHost,
    pod(2, publishedPort(), publishedPort({ hostPort: 8443, podPort: 443 })),
  );
  t.deepEqual(
    edits.map((edit) => restoreText(edit).replaceAll(/-m comment --comment \S+ /g, "")),
    [
      `*filter
:HYPER - [0:0]
-I HYPER 1 -d 192.168.123.2/32 -p tcp -m tcp --dport 80 -m conntrack --ctstate DNAT -j ACCEPT
-I HYPER 2 -d 192.168.123.2/32 -p tcp -m tcp --dport 443 -m conntrack --ctstate DNAT -j ACCEPT
COMMIT
`,
      `*nat
:HYPER - [0:0]
-I HYPER 1 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 192.168.123.2:80
-I HYPER 2 -p tcp -m tcp --dport 8443 -j DNAT --to-destination 192.168.123.2:443
-I POSTROUTING 1 -s 192.168.123.0/24 -d 192.168.123.2/32 -o hyper0 -m conntrack --ctstate DNAT -j MASQUERADE
COMMIT
`,
    ],
  );
});

test("Publishing one port more, or one less, touches no other", (t) => {
  const two = apply(
    emptyHost,
    pod(2, publishedPort(), publishedPort({ hostPort: 8443, podPort: 443 })),
  );
  const lines = (fragment: PodFragment): string[] =>
    look(two, fragment).flatMap((edit) => edit.lines.map((line) => line.replace(/ .*dport/, "")));
  const more = publishedPort({ hostPort: 9000, podPort: 90 });
  t.deepEqual(
    lines(pod(2, publishedPort(), publishedPort({ hostPort: 8443, podPort: 443 }), more)),
    [
      "-I 90 -m conntrack --ctstate DNAT -m comment --comment podnet:pod:podaaaaaaaa2 -j ACCEPT",
      "-I 9000 -m comment --comment podnet:pod:podaaaaaaaa2 -j DNAT --to-destination 192.168.123.2:90",
    ],
  );
  t.deepEqual(lines(pod(2, publishedPort())), [
    "-D 443 -m conntrack --ctstate DNAT -m comment --comment podnet:pod:podaaaaaaaa2 -j ACCEPT",
    "-D 8443 -m comment --comment podnet:pod:podaaaaaaaa2 -j DNAT --to-destination 192.168.123.2:443",
  ]);
  t.deepEqual(
    lines(pod(2, publishedPort({ hostPort: 8443, podPort: 443 }), publishedPort())),
    [],
    "in any order",
  );
});

test("A pod's rules below what drops, and twins of them, are put right", (t) => {
  const whole = apply(emptyHost, pod(2, publishedPort()));
  const rule = (text: string): string => /^-A HYPER .* -j ACCEPT$/m.exec(text)?.[0] as string;
  const drop = "-A HYPER ! -i hyper0 -o hyper0 -m comment --comment podnet:network:default -j DROP";
  const doubled = whole.replace(rule(whole), `${rule(whole)}\n${drop}\n${rule(whole)}`);
  const put = apply(doubled, pod(2, publishedPort()));
  t.is(put, whole.replace(rule(whole), `${rule(whole)}\n${drop}`));
  const below = whole.replace(rule(whole), `${drop}\n${rule(whole)}`);
  t.is(apply(below, pod(2, publishedPort())), put);
});

const ports = fc
  .tuple(fc.integer({ min: 1, max: 60_000 }), fc.integer({ min: 1, max: 60_000 }), fc.nat(20))
  .map(([hostPort, podPort, more]) => publishedPort({ hostPort, podPort, count: 1 + more }));

test("Whatever pods publish and take back, each has its own, and in the end the host is as before", (t) => {
  const steps = fc.array(
    fc.tuple(fc.integer({ min: 2, max: 4 }), fc.array(ports, { maxLength: 3 })),
    {
      maxLength: 12,
    },
  );
  fc.assert(
    fc.property(steps, (history) => {
      let text = emptyHost;
      const last = new Map<number, readonly PublishedDesired[]>();
      for (const [n, list] of history) {
        text = apply(text, pod(n, ...list));
        last.set(n, list);
        for (const [each, held] of last) t.deepEqual(look(text, pod(each, ...held)), []);
      }
      for (const n of last.keys()) text = apply(text, pod(n));
      t.is(text, emptyHost);
    }),
    { numRuns: 100 },
  );
});
