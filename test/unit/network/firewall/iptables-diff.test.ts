import test from "ava";
import * as fc from "fast-check";
import type { Cidr, IpPrefix } from "../../../../core/address.ts";
import { isPodnetError } from "../../../../core/errors.ts";
import type { IfName } from "../../../../core/names.ts";
import type { NetworkFragment } from "../../../../network/model/desired.ts";
import {
  diffFirewall,
  type FirewallWanted,
  restoreText,
} from "../../../../network/firewall/iptables/diff.ts";
import { networkRules, sharedRules } from "../../../../network/firewall/iptables/network-rules.ts";
import { parseChainName, ruleText } from "../../../../network/firewall/iptables/rule.ts";
import { parseSave, type SavedTables } from "../../../../network/firewall/iptables/save-format.ts";
import { chooseVariant } from "../../../../network/firewall/iptables/variant.ts";
import { chainMark, networkMark } from "../../../../network/model/ownership.ts";
import { commitToText, emptyHost } from "../../../lab/iptables-model.ts";

const network = (key = "default", more: Partial<NetworkFragment> = {}): NetworkFragment => ({
  kind: "network",
  key,
  bridge: (key === "default" ? "hyper0" : `br-${key}`) as IfName,
  gateways: ["192.168.123.1/24" as IpPrefix],
  mtu: 1500,
  masquerade: ["192.168.123.0/24" as Cidr],
  firewall: true,
  chain: "HYPER",
  forward: true,
  ...more,
});

const wanted = (
  saved: SavedTables,
  fragment = network(),
  more: Partial<FirewallWanted> = {},
): FirewallWanted => ({
  family: 4,
  saved,
  chain: "HYPER",
  rules: [...networkRules(fragment, 4), ...sharedRules("HYPER", 4)],
  owners: new Set([networkMark(fragment.key), chainMark("HYPER")]),
  remembered: () => false,
  ...more,
});

const gone = (saved: SavedTables, ...keys: string[]): FirewallWanted =>
  wanted(saved, network(), {
    rules: [],
    owners: new Set([...keys.map(networkMark), chainMark("HYPER")]),
  });

/** Applies edits as iptables-restore would, on the text of iptables-save. */
const apply = (text: string, change: FirewallWanted): string =>
  diffFirewall(change).reduce(commitToText, text);

test("The rules of a network, golden", (t) => {
  t.deepEqual([...networkRules(network(), 4), ...sharedRules("HYPER", 4)].map(ruleText), [
    "filter -A FORWARD -o hyper0 -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment podnet:network:default -j ACCEPT",
    "filter -A FORWARD -o hyper0 -m comment --comment podnet:network:default -j HYPER",
    "filter -A FORWARD -i hyper0 -m comment --comment podnet:network:default -j ACCEPT",
    "filter -A HYPER -o hyper0 -m mark --mark 0x2000/0x2000 -m comment --comment podnet:network:default -j ACCEPT",
    "filter -A HYPER ! -i hyper0 -o hyper0 -m comment --comment podnet:network:default -j DROP",
    "nat -A POSTROUTING -s 192.168.123.0/24 ! -o hyper0 -m comment --comment podnet:network:default -j MASQUERADE",
    "nat -A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment podnet:chain:HYPER -j HYPER",
    "nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -m comment --comment podnet:chain:HYPER -j HYPER",
    "nat -A HYPER -m comment --comment podnet:chain:HYPER -j RETURN",
  ]);
  t.deepEqual(networkRules(network("default", { firewall: false }), 4), []);
  t.true(
    networkRules(network("default", { isolated: true }), 4)
      .map(ruleText)
      .includes("filter -A HYPER -o hyper0 -m comment --comment podnet:network:default -j DROP"),
  );
});

test("The commits for an untouched host, golden", (t) => {
  const edits = diffFirewall(wanted(parseSave("")));
  t.deepEqual(
    edits.map((edit) => restoreText(edit)),
    [
      `*filter
:HYPER - [0:0]
-I FORWARD 1 -o hyper0 -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment podnet:network:default -j ACCEPT
-I FORWARD 2 -o hyper0 -m comment --comment podnet:network:default -j HYPER
-I FORWARD 3 -i hyper0 -m comment --comment podnet:network:default -j ACCEPT
-I HYPER 1 -o hyper0 -m mark --mark 0x2000/0x2000 -m comment --comment podnet:network:default -j ACCEPT
-I HYPER 2 ! -i hyper0 -o hyper0 -m comment --comment podnet:network:default -j DROP
COMMIT
`,
      `*nat
:HYPER - [0:0]
-I POSTROUTING 1 -s 192.168.123.0/24 ! -o hyper0 -m comment --comment podnet:network:default -j MASQUERADE
-I PREROUTING 1 -m addrtype --dst-type LOCAL -m comment --comment podnet:chain:HYPER -j HYPER
-I OUTPUT 1 ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -m comment --comment podnet:chain:HYPER -j HYPER
-I HYPER 1 -m comment --comment podnet:chain:HYPER -j RETURN
COMMIT
`,
    ],
  );
  t.true(edits.every((edit) => edit.makesChain));
});

test("Applied once there is nothing left to do, and taken away the host is as before", (t) => {
  const once = apply(emptyHost, wanted(parseSave(emptyHost)));
  t.deepEqual(diffFirewall(wanted(parseSave(once))), []);
  t.is(apply(once, gone(parseSave(once), "default")), emptyHost);
});

test("Two networks: no bridge lets out before every bridge was asked, and one can go alone", (t) => {
  const one = apply(emptyHost, wanted(parseSave(emptyHost)));
  const blue = network("blue", { masquerade: [] });
  const two = apply(one, wanted(parseSave(one), blue));
  const forward = two.split("\n").filter((line) => line.startsWith("-A FORWARD"));
  t.deepEqual(
    forward.map((line) => /-([io]) (\S+).* -j (\S+)/.exec(line)?.slice(1).join(" ")),
    [
      "o br-blue ACCEPT",
      "o br-blue HYPER",
      "o hyper0 ACCEPT",
      "o hyper0 HYPER",
      "i br-blue ACCEPT",
      "i hyper0 ACCEPT",
    ],
  );
  t.deepEqual(diffFirewall(wanted(parseSave(two))), []);
  t.deepEqual(diffFirewall(wanted(parseSave(two), blue)), []);
  const back = apply(
    two,
    wanted(parseSave(two), blue, { rules: [], owners: new Set([networkMark("blue")]) }),
  );
  t.is(back, one);
});

for (const [what, foreign] of [
  ["with a foreign rule", ":HYPER - [0:0]\n-A HYPER -d 192.168.123.2/32 -j ACCEPT"],
  ["empty, with an ancestor's jump", ":HYPER - [0:0]\n-A FORWARD -o hyper0 -j HYPER"],
  ["empty and never ours", ":HYPER - [0:0]"],
] as const) {
  test(`A chain of our name is refused: ${what}`, (t) => {
    for (const table of ["filter", "nat"]) {
      const saved = parseSave(`*${table}\n:FORWARD ACCEPT [0:0]\n${foreign}\nCOMMIT\n`);
      const error = t.throws(() => diffFirewall(wanted(saved)));
      t.true(isPodnetError(error, "CHAIN_CONFLICT"));
      if (isPodnetError(error)) t.regex(error.hint ?? "", /iptables_chain/);
      // Taking away never fails on it and never touches it.
      t.deepEqual(diffFirewall(gone(saved, "default")), []);
    }
  });
}

test("After iptables -F of one table the chain is known by its twin; of both, by memory", (t) => {
  const full = apply(emptyHost, wanted(parseSave(emptyHost)));
  const flush = (text: string, table: string): string => {
    let inside = "";
    return text
      .split("\n")
      .filter((line) => {
        if (line.startsWith("*")) inside = line.slice(1);
        return !(inside === table && line.startsWith("-A"));
      })
      .join("\n");
  };
  const filterFlushed = flush(full, "filter");
  t.is(apply(filterFlushed, wanted(parseSave(filterFlushed))), full);
  const bothFlushed = flush(filterFlushed, "nat");
  t.true(
    isPodnetError(
      t.throws(() => diffFirewall(wanted(parseSave(bothFlushed)))),
      "CHAIN_CONFLICT",
    ),
  );
  const remembered = wanted(parseSave(bothFlushed), network(), { remembered: () => true });
  t.is(apply(bothFlushed, remembered), full);
});

test("A renamed chain's leftovers go", (t) => {
  const old = apply(emptyHost, wanted(parseSave(emptyHost)));
  const renamed = network("default", { chain: "PODNET" });
  const moved = apply(old, {
    family: 4,
    saved: parseSave(old),
    chain: "PODNET",
    oldChains: ["HYPER"],
    rules: [...networkRules(renamed, 4), ...sharedRules("PODNET", 4)],
    owners: new Set([networkMark("default"), chainMark("PODNET"), chainMark("HYPER")]),
    remembered: () => false,
  });
  t.false(moved.includes("HYPER"));
  t.true(moved.includes("-j PODNET"));
});

test("Whatever became of our rules, one repair restores them, a second finds nothing, foreign rules stay in order", (t) => {
  const full = apply(emptyHost, wanted(parseSave(emptyHost)));
  const foreignRule = fc
    .tuple(fc.constantFrom("INPUT", "FORWARD", "OUTPUT"), fc.integer({ min: 1, max: 250 }))
    .map(([chain, host]) => `-A ${chain} -s 10.0.0.${host}/32 -j DROP`);
  const foreignOf = (text: string): string[] =>
    text.split("\n").filter((line) => line.startsWith("-A") && !line.includes("podnet:"));
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(), fc.constantFrom("drop", "twin", "shuffle"), fc.nat()), {
        maxLength: 12,
      }),
      fc.array(foreignRule, { maxLength: 6 }),
      (moves, foreign) => {
        const lines = full.split("\n");
        const end = lines.indexOf("COMMIT");
        const head = lines.slice(0, end).filter((line) => !line.startsWith("-A"));
        const rules = [...lines.slice(0, end).filter((line) => line.startsWith("-A")), ...foreign];
        for (const [at, move, to] of moves) {
          const i = at % Math.max(rules.length, 1);
          const rule = rules[i];
          if (rule === undefined || (!rule.includes("podnet:") && move !== "shuffle")) continue;
          if (move !== "twin") rules.splice(i, 1);
          if (move !== "drop" && rule.includes("podnet:"))
            rules.splice(to % (rules.length + 1), 0, rule);
          else if (move === "shuffle") rules.splice(i, 0, rule);
        }
        const damaged = [...head, ...rules, ...lines.slice(end)].join("\n");
        const repaired = apply(damaged, wanted(parseSave(damaged)));
        t.deepEqual(diffFirewall(wanted(parseSave(repaired))), []);
        const sorted = (text: string): string[] => foreignOf(text).toSorted(byChain(damaged));
        t.deepEqual(sorted(repaired), sorted(damaged));
        const cleared = apply(repaired, gone(parseSave(repaired), "default"));
        t.false(cleared.includes("podnet:"));
        t.deepEqual(sorted(cleared), sorted(repaired));
      },
    ),
  );
});

// The model prints rules chain by chain, as iptables-save does.
const byChain = (text: string) => {
  const chains = [...text.matchAll(/^:(\S+)/gm)].map(([, chain]) => chain as string);
  const rank = (line: string): number => chains.indexOf(line.split(" ")[1] as string);
  return (a: string, b: string): number => rank(a) - rank(b);
};

test("The variant is the configured one, ours, the one in use, the system's; both in use is refused", (t) => {
  const none = parseSave("");
  const ours = parseSave(apply(emptyHost, wanted(parseSave(emptyHost))));
  const foreign = parseSave("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\nCOMMIT\n");
  const looked = parseSave(emptyHost);
  const policy = parseSave("*filter\n:INPUT DROP [0:0]\nCOMMIT\n");
  const choose = (
    nft: SavedTables,
    legacy: SavedTables,
    configured: "auto" | "nft" | "legacy" = "auto",
  ) => chooseVariant({ configured, systemDefault: "nft", saved: { nft, legacy } });
  t.is(choose(none, none), "nft");
  t.is(choose(looked, looked), "nft");
  t.is(choose(looked, foreign), "legacy");
  t.is(choose(none, policy), "legacy");
  t.is(choose(foreign, looked), "nft");
  t.is(choose(foreign, ours), "legacy");
  t.is(choose(foreign, foreign, "legacy"), "legacy");
  t.is(choose(foreign, policy), "nft", "the system's default");
  const remembered = { configured: "auto", systemDefault: "nft", remembered: "legacy" } as const;
  t.is(chooseVariant({ ...remembered, saved: { nft: foreign, legacy: none } }), "legacy");
});

test("A chain's name cannot be a target's, an option or too long; a bridge's cannot be a wildcard", (t) => {
  t.is(parseChainName("HYPER"), "HYPER");
  for (const name of ["", "DROP", "FORWARD", "-A", "a b", "x\nCOMMIT", "!x", 'a"b', "x".repeat(29)])
    t.true(
      isPodnetError(
        t.throws(() => parseChainName(name)),
        "CONFIG_INVALID",
      ),
      name,
    );
  t.throws(() => networkRules(network("default", { bridge: "hyper+" as IfName }), 4), {
    message: /wildcard/,
  });
});
