import test from "ava";
import {
  mainTable,
  ruleComments,
  type TableModel,
} from "../../../../network/firewall/nftables/base.ts";
import { guardTables } from "../../../../network/firewall/nftables/guard-tables.ts";
import { hostGuard } from "../../../../network/firewall/nftables/host-guard.ts";
import { policedPortsTable } from "../../../../network/firewall/nftables/policed-ports.ts";
import { policyTable } from "../../../../network/firewall/nftables/policy-table.ts";
import { bridgeGuard } from "../../../../network/firewall/nftables/port-guard.ts";
import { publishedTable } from "../../../../network/firewall/nftables/published-table.ts";
import { sendersTable } from "../../../../network/firewall/nftables/senders-table.ts";
import { parseRuleTexts } from "../../../../network/firewall/rule-texts.ts";
import { standsFor } from "../../../../network/firewall/stands-for.ts";
import { dropKinds } from "../../../../network/model/drop-kinds.ts";

const entryOf = (chain: string, place: number): string => `${chain}/${place}`;

const everyRule = (model: TableModel): string[] =>
  Object.keys(model.chains).flatMap((chain) =>
    ruleComments(chain, model).map((comment) =>
      standsFor({ table: model.name, comment, text: "as nft lists it" }, entryOf),
    ),
  );

test("every rule of podnet's tables stands for something, and every kind of the guard is named", (t) => {
  const all = [
    mainTable,
    ...guardTables,
    policyTable,
    policedPortsTable,
    sendersTable,
    publishedTable,
  ];
  for (const model of all) t.false(everyRule(model).includes(""), model.name);
  const guard = new Set(everyRule(bridgeGuard));
  for (const kind of Object.keys(dropKinds)) t.true(guard.has(`guard: ${kind}`), kind);
  // Where a rule counts what others have named, the packet's mark says the kind.
  const comment = ruleComments("dropped", bridgeGuard)[1] ?? "";
  const dropped = { table: bridgeGuard.name, comment, text: "drop" };
  t.is(standsFor({ ...dropped, mark: 6 }, entryOf), "guard: ipv6");
});

test("the guard of the host refuses the host in one chain, and the cloud's metadata in another", (t) => {
  const refusing = (chain: string): (string | undefined)[] =>
    ruleComments(chain, hostGuard).map((comment) =>
      standsFor({ table: hostGuard.name, comment, text: "reject" }, entryOf),
    );
  t.is(refusing("host").at(-1), "host");
  t.is(refusing("metadata").at(-1), "cloud-metadata");
  t.is(refusing("metadata").at(-2), "answers");
});

test("a rule is podnet's by its comment, in a table of podnet's", (t) => {
  const said = (table: string, comment: string, text = ""): string =>
    standsFor({ table, comment, text }, entryOf);
  t.is(said("inet podnet_policy", "podnet:table:policy_0a1b:2/5"), "policy_0a1b/2");
  const [comment = ""] = ruleComments("forward");
  t.is(said("inet filter", comment), "", "another program's copy");
  t.is(said("inet filter", "accept all"), "");
  const mark = "podnet:network:default";
  t.is(said("ip filter", mark, `! -i hyper0 -o hyper0 -m comment -j DROP`), "networks");
  t.is(said("ip filter", mark, `-o hyper0 -m comment -j DROP`), "isolated");
  t.is(said("ip filter", mark, `-o hyper0 -m mark --mark 0x2000/0x2000 -j ACCEPT`), "published");
  t.is(said("ip nat", mark, `-s 10.0.0.0/24 ! -o hyper0 -j MASQUERADE`), "masquerade");
  t.is(said("ip nat", "podnet:pod:abcdefghijkl", `-j MASQUERADE`), "hairpin");
  t.is(said("ip nat", "podnet:pod:abcdefghijkl", `-p tcp -j DNAT --to 10.0.0.2:80`), "published");
  t.is(said("ip filter", "podnet:overlay:o", `-j ACCEPT`), "overlay");
});

test("rules are read with their handles, also those that nft breaks into lines", (t) => {
  const rules = parseRuleTexts(`table inet x { # handle 4
	chain host { # handle 7
		type filter hook input priority -10; policy accept;
		ct direction reply return comment "a # handle 9" # handle 12
		tcp dport { 80, 443,
			    8080 } drop # handle 13
	}
}
`);
  t.deepEqual(
    [...rules],
    [
      [12n, { text: "ct direction reply return", comment: "a # handle 9" }],
      [13n, { text: "tcp dport { 80, 443, 8080 } drop" }],
    ],
  );
});
