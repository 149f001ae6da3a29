import type { IptablesEdit } from "../../network/model/rules.ts";

/** What `iptables-save` prints after a look without changes. */
export const emptyHost = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
`;

/**
 * iptables-restore --noflush as plain text surgery on iptables-save's format, for property tests:
 * strict where the real one is (positions in range, -D of something that exists, -X of an empty
 * chain). The kernel tests run the real one.
 */
export function commitToText(text: string, edit: IptablesEdit): string {
  return text
    .split(/(?<=^COMMIT\n)/m)
    .map((table) => (table.startsWith(`*${edit.table}\n`) ? commitTable(table, edit) : table))
    .join("");
}

function commitTable(table: string, edit: IptablesEdit): string {
  const chains = new Map<string, string[]>();
  const policies = new Map<string, string>();
  for (const line of table.split("\n")) {
    const [, chain, policy] = /^:(\S+) (\S+)/.exec(line) ?? [];
    if (chain !== undefined) {
      chains.set(chain, []);
      policies.set(chain, policy as string);
    }
    const [, to, rule] = /^-A (\S+) ?(.*)$/.exec(line) ?? [];
    if (to !== undefined) (chains.get(to) as string[]).push(rule as string);
  }
  const must = (ok: boolean, line: string): void => {
    if (!ok) throw new Error(`iptables-restore would refuse: ${line}`);
  };
  for (const line of edit.lines) {
    const [, verb, chain, rest = ""] = /^(:|-[IDX] )(\S+) ?(.*)$/.exec(line) ?? [];
    const list = chains.get(chain ?? "");
    if (verb === ":") {
      chains.set(chain as string, []);
      policies.set(chain as string, "-");
    } else if (verb === "-I ") {
      const [, position, rule] = /^(\d+) (.*)$/.exec(rest) ?? [];
      must(list !== undefined && Number(position) <= list.length + 1, line);
      list?.splice(Number(position) - 1, 0, rule as string);
    } else if (verb === "-D ") {
      const at = list?.indexOf(rest) ?? -1;
      must(at >= 0, line);
      list?.splice(at, 1);
    } else if (verb === "-X ") {
      const used = [...chains.values()].flat().some((rule) => rule.endsWith(`-j ${chain}`));
      must(list?.length === 0 && !used, line);
      chains.delete(chain as string);
    } else must(false, line);
  }
  const rules = [...chains].flatMap(([chain, list]) => list.map((rule) => `-A ${chain} ${rule}`));
  return [
    `*${edit.table}`,
    ...[...chains.keys()].map((chain) => `:${chain} ${policies.get(chain)} [0:0]`),
    ...rules,
    "COMMIT\n",
  ].join("\n");
}
