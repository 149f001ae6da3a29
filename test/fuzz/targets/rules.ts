import { deepStrictEqual } from "node:assert";
import { parseIfName } from "../../../core/names.ts";
import { readGuestLinks } from "../../../daemon/verify/guest-links.ts";
import { readGuard } from "../../../daemon/verify/rules-source-guard.ts";
import { parseGuardReport, parseRulesReport } from "../../../daemon/verify/source-reports.ts";
import { readListedRules, readSavedRules } from "../../../daemon/verify/rules-source-reader.ts";
import { drops, forwardChains } from "../../../network/firewall/obstacles.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const saved = `*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m comment --comment "of \\"others\\"" -j HYPER-PRE
-A HYPER-PRE -d 10.0.0.1/32 -p tcp -m tcp --dport 8080:8090 -j DNAT --to-destination 10.0.0.2:80-90/8080
-A HYPER-PRE -p udp -m udp --dport 53 -j DNAT --to-destination 10.0.0.2:53
-A HYPER-PRE -p sctp --dport 7 -j DNAT --to-destination [fd00::2]:7
-A HYPER-PRE -p tcp --dport 9 -j DNAT --to-destination fd00::2
-A HYPER-PRE -p tcp --dport 9 -j DNAT --to-destination [fd00::2
-A HYPER-PRE ! -d 10.0.0.1/32 -p tcp --dport 9 -j DNAT --to-destination 10.0.0.3
-A POSTROUTING -s 10.0.0.0/24 -d 10.0.0.2/32 -o hyper0 -j MASQUERADE
-A POSTROUTING -s 10.0.0.0/24 -o hyper0 -j MASQUERADE
-A POSTROUTING -s 10.0.0.0/24 -j MASQUERADE
-A POSTROUTING -s 10.0.0.0/24
COMMIT
*filter
-A FORWARD -g HYPER
-A HYPER -j FORWARD
-A HYPER -d 10.0.0.2/32 -p tcp -m tcp --dport 80 -j ACCEPT
-A HYPER -p tcp --dport 80:90 -j ACCEPT
-A HYPER -p tcp -j ACCEPT
-A HYPER --dport 80 -j ACCEPT
-A HYPER -o hyper0 -m mark --mark 0x2000/0x2000 -j ACCEPT
-A HYPER -m mark --mark 8 -j ACCEPT
-A HYPER -m mark --mark x -j ACCEPT
-A HYPER -j DROP
COMMIT
`;

const rule = (chain: string, ...expr: readonly unknown[]): object => ({ rule: { chain, expr } });
const set = (name: string, ...elem: readonly unknown[]): object => ({ set: { name, elem } });
const nft = (...entries: readonly object[]): Uint8Array => json({ nftables: entries });
const forwards = { family: "ip", table: "wall", name: "ahead", hook: "forward", policy: "drop" };

const marks = (bit: unknown): object => {
  const mark = { meta: { key: "mark" } };
  return { mangle: { key: mark, value: { "|": [mark, bit] } } };
};

const decided = nft(
  { chain: { name: "pre", hook: "prerouting" } },
  { chain: { name: "fwd", hook: "forward" } },
  { chain: { name: "post", hook: "postrouting" } },
  { chain: { name: "sub" } },
  { chain: { hook: "prerouting" } },
  { rule: { chain: "pre" } },
  rule("pre", { jump: { target: "sub" } }, null, "word"),
  rule("sub", { goto: { target: "pre" } }),
  rule("sub", { dnat: { addr: { map: { key: 1, data: "@places" } } } }),
  rule("fwd", { match: { right: "@open" } }, { accept: null }),
  rule("fwd", { match: { right: "@open" } }, marks(8192)),
  rule("fwd", marks("x")),
  rule(
    "post",
    { match: { left: { ct: "status" }, right: "dnat" } },
    { masquerade: "@own" },
    "dnat",
  ),
  rule("post", { masquerade: null }),
  {
    map: {
      name: "places",
      elem: [
        [{ concat: [6, "10.0.0.1", 8080] }, { concat: ["10.0.0.2", 80] }],
        [{ elem: { val: { concat: [17, 53] }, comment: "x" } }, { concat: ["fd00::2", 53] }],
        [{ concat: [6, 1] }, { concat: [] }],
        [[], []],
        7,
      ],
    },
  },
  set("open", { concat: ["tcp", "10.0.0.2", 80] }, { concat: [132, "10.0.0.2"] }, "x"),
  set(
    "own",
    { concat: [{ prefix: { addr: "10.0.0.0", len: 24 } }, "hyper0"] },
    { concat: ["fd00::/64", "hyper0", "fd00::2"] },
    { concat: [] },
  ),
);

const words =
  "nftables chain rule expr jump goto target accept drop reject match hook forward policy @open dnat".split(
    " ",
  );
words.push("masquerade", "-A ", "-j ", "--dport ", "--to-destination ", "\n", "! ");

/** Rules as programs print them: what the source of `podnet verify` makes of them. */
const source: Target = {
  name: "rules-source",
  files: ["daemon/verify/rules-source-reader.ts"],
  seeds: [
    chosen(0, utf8(saved)),
    chosen(1, decided),
    chosen(1, utf8(" \n")),
    chosen(1, utf8("{")),
    chosen(1, json({ nftables: 7 })),
    chosen(1, json([])),
    chosen(1, json(null)),
  ],
  words,
  run: choosing([
    (bytes) => checkReport(readSavedRules(textOf(bytes))),
    (bytes) => {
      try {
        checkReport(readListedRules(textOf(bytes)));
      } catch (error) {
        // It ends with that, and podnetd hears that the source could not speak.
        if (!(error instanceof SyntaxError)) throw error;
      }
    },
  ]),
};

const ofGuard = (table: string, entry: object): object =>
  Object.fromEntries(
    Object.entries(entry).map(([kind, own]) => [
      kind,
      { family: table === "podnet" ? "bridge" : "inet", table, ...(own as object) },
    ]),
  );
const element = (...concat: readonly unknown[]): object => ({ elem: { val: { concat } } });
const sixteen = "0xfd000123000000000000000000000002";
const guarded = nft(
  ofGuard("podnet", { chain: { name: "in", hook: "prerouting" } }),
  ofGuard("podnet", { chain: { name: "port" } }),
  ofGuard("podnet", rule("in", { jump: { target: "port" } })),
  ofGuard("podnet", rule("port", { match: { op: "!=", right: "@macs" } }, { drop: null })),
  ofGuard(
    "podnet",
    set(
      "macs",
      element("tap2", 90_520_730_730_498),
      element("tap2", "0x1234567890abcd"),
      element("tap2", "x"),
    ),
  ),
  ofGuard(
    "podnet",
    set("addresses6", element("tap2", sixteen), element("tap2", 7), element("tap2", "x"), "word"),
  ),
  ofGuard("podnet", set("addresses4", element("tap2", "10.0.0.2"))),
  ofGuard("podnet", set("senders4", element("tap2", "10.0.0.2", 90_520_730_730_498))),
  ofGuard("podnet", set("any6", "tap2", { elem: { val: "tap3" } }, element())),
  ofGuard("podnet_policy", { chain: { name: "forward", hook: "forward" } }),
  ofGuard("podnet_policy", rule("forward", { vmap: { key: 1, data: "@egress4" } })),
  ofGuard("podnet_policy", rule("policy_a", { return: null })),
  ofGuard("podnet_policy", {
    map: {
      name: "egress4",
      elem: [
        [element("hyper0", "10.0.0.2"), { jump: { target: "policy_a" } }],
        [element("hyper0", "10.0.0.3"), { goto: { target: "policy_b" } }],
        7,
      ],
    },
  }),
);

/** What nft prints of the guard and of policies, as the source of `podnet verify` reads it. */
const guard: Target = {
  name: "guard-source",
  files: ["daemon/verify/rules-source-guard.ts"],
  seeds: [
    guarded,
    utf8(`${Buffer.from(guarded).toString()}\n\n${Buffer.from(nft()).toString()}`),
    utf8("{"),
    json({ nftables: 7 }),
    json(null),
  ],
  words: [...words, "bridge", "inet", "podnet", "podnet_policy", "@macs", "egress4", "0x"],
  run: (bytes) => {
    try {
      const said = readGuard(textOf(bytes));
      valueOf(["COMMAND_FAILED"], () => parseGuardReport(JSON.stringify(said)));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
  },
};

const shownLinks = `1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue qlen 1000\\    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
2: eth0@if3: <BROADCAST,UP> mtu 1500 qdisc fq qlen 1000\\    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
3: eth1: <BROADCAST> link/ether 52:54:00:12:34:57
`;
const shownAddresses = `2: eth0    inet 10.0.0.2/24 brd 10.0.0.255 scope global eth0
2: eth0    inet6 fd00::2/64 scope global
`;

/** What a guest's `ip` prints: both of its texts, a NUL between them. */
const guestLinks: Target = {
  name: "guest-links",
  files: ["daemon/verify/guest-links.ts"],
  only: ["readGuestLinks"],
  seeds: [utf8(`${shownLinks}\0${shownAddresses}`), utf8("2: eth0\0")],
  words: [" mtu ", " link/ether ", " inet ", " inet6 ", "\n", "2: eth0", "\0", "52:54:00:12:34:56"],
  run: (bytes) => {
    const [links = "", addresses = ""] = textOf(bytes).split("\0");
    for (const { mtu, mac } of readGuestLinks(links, addresses))
      deepStrictEqual([Number.isNaN(mtu), mac.length], [false, 17]);
  },
};

/** podnetd understands it, or says that it does not: numbers may be none. */
function checkReport(said: object): void {
  valueOf(["COMMAND_FAILED"], () => parseRulesReport(JSON.stringify(said)));
}

const bridge = parseIfName("hyper0");
const ahead = { family: "ip", table: "wall", name: "ahead" };
const oif = { match: { left: { meta: { key: "oifname" } }, right: "hyper0" } };
const status = { match: { left: { ct: { key: "status" } }, right: "dnat" } };

/** Chains of others, in whose way what goes to pods may be. */
const obstacles: Target = {
  name: "obstacles",
  files: ["network/firewall/obstacles.ts"],
  only: ["forwardChains", "drops", "verdict", "conditions", "meets"],
  seeds: [
    chosen(
      0,
      nft(
        { chain: forwards },
        { chain: { ...forwards, family: "inet", table: "podnet" } },
        { chain: { ...forwards, family: "arp" } },
        { chain: { ...forwards, family: "toString" } },
        { chain: { ...forwards, hook: "input" } },
        { chain: "x" },
        {},
      ),
    ),
    chosen(0, json({})),
    chosen(1, nft(rule("ahead", { drop: null }), rule("ahead", { jump: { target: "in" } }))),
    chosen(1, nft(rule("ahead", { goto: { target: "in" } }), rule("in", oif, { accept: null }))),
    chosen(1, nft(rule("ahead", status, { accept: null }))),
    chosen(1, nft(rule("ahead", { limit: 7 }, { accept: null }))),
    chosen(1, nft(rule("ahead", { match: { left: { meta: { key: "oif" } } } }, { accept: null }))),
    chosen(1, nft(rule("ahead", { jump: { target: "ahead" } }), rule("ahead", "x", null, []))),
    chosen(2, nft(rule("ahead", { reject: null }))),
    chosen(2, nft(rule("ahead", oif, { drop: null }), rule("ahead", { accept: null }))),
    chosen(2, nft({ rule: 7 }, { rule: { chain: "ahead" } })),
  ],
  words,
  run: choosing([
    (bytes) => {
      const chains = valueOf(["FIREWALL_FAILED"], () => forwardChains(textOf(bytes))) ?? [];
      for (const { family } of chains) deepStrictEqual(/^(?:ip6?|inet)$/.test(family), true);
    },
    ...["drop", "accept"].map((policy) => (bytes: Uint8Array) => {
      valueOf(["FIREWALL_FAILED"], () => drops(textOf(bytes), { ...ahead, policy }, bridge));
    }),
  ]),
};

export const rules: readonly Target[] = [source, guard, guestLinks, obstacles];
