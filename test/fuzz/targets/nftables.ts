import { deepStrictEqual, ok } from "node:assert";
import { ruleComments } from "../../../network/firewall/nftables/base.ts";
import { diffBase, isOurs } from "../../../network/firewall/nftables/diff.ts";
import { elementText, type Element, elementId } from "../../../network/model/nftables-sets.ts";
import { parseDenials, placeDenials } from "../../../network/firewall/nftables/denials.ts";
import { parseDrops, placeDrops } from "../../../network/firewall/nftables/drops.ts";
import { parseElements, parseListing } from "../../../network/firewall/nftables/listing.ts";
import { parseRuleTexts } from "../../../network/firewall/rule-texts.ts";
import { parseLearned } from "../../../network/firewall/nftables/learn-table.ts";
import { parseRefusals } from "../../../network/firewall/nftables/refusals.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const comment = "podnet:pod:abcdefghijkl";
const listing = {
  nftables: [
    { metainfo: { version: "1.0.6", json_schema_version: 1 } },
    { table: { family: "inet", name: "podnet", handle: 1 } },
    {
      set: {
        family: "inet",
        name: "own4",
        table: "podnet",
        type: ["ipv4_addr", "ifname"],
        handle: 2,
        comment: "podnet:table:own4",
        flags: ["interval"],
        elem: [
          {
            elem: {
              val: { concat: [{ prefix: { addr: "192.168.123.0", len: 24 } }, "hyper0"] },
              comment: "podnet:network:default",
            },
          },
          { range: ["10.0.0.1", "10.0.0.9"] },
          { concat: ["hyper0", 6, { range: [5000, 5010] }] },
        ],
      },
    },
    {
      map: {
        name: "everywhere6",
        type: ["inet_proto", "inet_service"],
        map: "ipv6_addr . inet_service",
        elem: [
          [{ elem: { val: { concat: [6, 8080] }, comment } }, { concat: ["fd00::2", 80] }],
          [{ concat: [17, 53] }, { concat: ["::1.2.3.4", 53] }],
        ],
      },
    },
    { chain: { name: "forward", type: "filter", hook: "forward", prio: 0, policy: "accept" } },
    { chain: { name: "arriving" } },
    {
      rule: {
        chain: "forward",
        comment: ruleComments("forward")[0],
        expr: [{ jump: { target: "arriving" } }],
      },
    },
  ],
};
const got = `table inet podnet {
	map everywhere6 {
		type inet_proto . inet_service : ipv6_addr . inet_service
		elements = { 6 . 8080 comment "${comment}" : fd00::2 . 80,
			     17 . 53 : ::1.2.3.4 . 53 }
	}
}
`;

const refused = [
  { elem: { val: "4b1a:9", counter: { packets: 3, bytes: 180 } } },
  { elem: { val: "7000:", counter: null } },
];

/** Words as nft writes them. */
const isProper = ({ key, value = "0" }: Element): boolean =>
  `${key} . ${value}`
    .split(" . ")
    .every((word) => /^(?:"[^"]*"|(?=.*[^:])[0-9A-Za-z.:/_-]+)$/.test(word) && word !== ".");

const drop = (link: string): unknown => ({
  elem: { val: { concat: [link, 1] }, counter: { packets: 3, bytes: 180 } },
});

const denied = ["10.0.0.2", "10.0.0.3", "fd00::2"].map((address, i) => ({
  elem: {
    val: { concat: [address, i === 1 ? "none" : "4b1a:9", 74565] },
    counter: { packets: 3, bytes: 180 },
  },
}));

const learned = [
  { concat: ["192.0.2.7", 6, 443] },
  { elem: { val: { concat: ["2001:db8::7", 17, 53] } } },
  "192.0.2.8",
  "none",
];

/** What libnftables prints of our table, of single elements, and of what was dropped. */
export const nftables: Target = {
  name: "nftables-text",
  files: [
    "network/firewall/nftables/listing.ts",
    "network/firewall/nftables/refusals.ts",
    "network/firewall/nftables/drops.ts",
    "network/firewall/nftables/denials.ts",
    "network/firewall/nftables/learn-table.ts",
  ],
  except: [
    "placeRefusals",
    "ruleNumber",
    "holderNumber",
    "deniedChain",
    "deniedRules",
    "digestOf",
    "learnElements",
  ],
  seeds: [
    chosen(0, json(listing)),
    chosen(0, json({ nftables: [{ set: { name: "bridges", elem: ["hyper0", 7, null, [[]]] } }] })),
    chosen(0, json({ nftables: {} })),
    chosen(1, utf8(got)),
    chosen(1, utf8('elements = { "hyper0" . "hyper0" . fd00::1 comment "a, } : b" }')),
    chosen(1, utf8('elements = { "a')),
    chosen(2, json({ nftables: [{ set: { name: "refused", elem: refused } }] })),
    chosen(3, json({ nftables: [{ set: { name: "drops", elem: [drop("tap2"), drop("7")] } }] })),
    chosen(5, json({ nftables: [{ set: { name: "learned4", elem: learned } }] })),
    chosen(4, json({ nftables: [{ set: { name: "denied4", elem: denied } }] })),
  ],
  words: [
    "elements = {",
    "}",
    ",",
    " : ",
    ' comment "',
    '"',
    " . ",
    "::",
    "concat",
    "prefix",
    "elem",
  ],
  run: choosing([
    (bytes) => {
      const found = valueOf(["FIREWALL_FAILED"], () => parseListing(textOf(bytes)));
      if (found === undefined) return;
      isOurs(found);
      diffBase(found, new Map());
      for (const set of found.sets.values()) set.elements.map(elementId);
    },
    (bytes) => {
      const elements = parseElements(textOf(bytes), "everywhere6").filter(isProper);
      // What nft could have said is written so that it is read as the same.
      const written = `elements = { ${elements.map(elementText).join(", ")} }`;
      deepStrictEqual(parseElements(written, "everywhere6"), elements);
    },
    (bytes) => {
      const found = valueOf(["FIREWALL_FAILED"], () => parseRefusals(textOf(bytes)));
      for (const { identity } of found ?? []) ok(identity < 2 ** 32);
    },
    (bytes) => {
      const listed = valueOf(["FIREWALL_FAILED"], () => parseDrops(textOf(bytes))) ?? [];
      const { drops, stale } = placeDrops(listed, new Map([[7, "tap7"]]));
      if (drops.length + stale.length > listed.length) throw new Error("More than was listed");
    },
    (bytes) => {
      const listed = valueOf(["FIREWALL_FAILED"], () => parseDenials(textOf(bytes))) ?? [];
      const { denied, stale } = placeDenials(listed, new Map([["4b1a:9", "pod"]]));
      if (denied.length + stale.length > listed.length) throw new Error("More than was listed");
    },
    (bytes) => {
      for (const { address } of valueOf(["FIREWALL_FAILED"], () => parseLearned(textOf(bytes))) ??
        [])
        ok(address.length > 1);
    },
  ]),
};

const listedChain = `table inet podnet_guard { # handle 4
	chain host { # handle 7
		type filter hook input priority -10; policy accept;
		ct direction reply return comment "podnet:table:0123abcd:host:0" # handle 12
		tcp dport { 80, 443,
			    8080 } counter packets 0 bytes 0 drop # handle 13
	}
}
`;

/** What libnftables prints of a chain of any program. */
export const chainText: Target = {
  name: "nftables-chain",
  files: ["network/firewall/rule-texts.ts"],
  only: ["parseRuleTexts"],
  seeds: [utf8(listedChain), utf8("\t\tdrop # handle 1\n\t\ttype filter;\n")],
  words: ["\t\t", " # handle 7", "\n", ' comment "', '"'],
  run: (bytes) => {
    const rules = parseRuleTexts(textOf(bytes));
    for (const { text } of rules.values()) ok(!text.includes("\n"));
    // A rule that nft could have printed is read as it was written.
    const proper = [...rules].filter(([, { text }]) =>
      /^[a-z0-9](?:[a-z0-9 .@!=]*[a-z0-9])?$/.test(text),
    );
    const lines = proper.map(([handle, { text }]) => `\t\t${text} # handle ${handle}`);
    deepStrictEqual(
      [...parseRuleTexts(lines.join("\n"))],
      proper.map(([handle, { text }]) => [handle, { text }]),
    );
  },
};
