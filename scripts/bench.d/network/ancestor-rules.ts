/**
 * Publishes a port for every line it reads, with one iptables process a rule as runv does it (seen
 * of hyperd 1.1.0: the nat chain is listed for conflicts, then a DNAT and an ACCEPT are inserted),
 * and prints what that cost: `ancestor-rules.ts PORTS` begins with so many published ones, in the
 * network namespace it is started in.
 */
import { execFile, spawnSync } from "node:child_process";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { crowdAddress, crowdHostPort } from "./crowd.ts";

const ports = Number(process.argv[2]);
const exec = promisify(execFile);

type Table = "nat" | "filter";

const rulesOf = (n: number): readonly (readonly [table: Table, rule: string])[] => [
  [
    "nat",
    `HYPER -p tcp -m tcp --dport ${crowdHostPort(n)} -j DNAT --to-destination ${crowdAddress(n)}:80`,
  ],
  ["filter", `HYPER -d ${crowdAddress(n)}/32 -p tcp -m tcp --dport 80 -j ACCEPT`],
];

for (const table of ["nat", "filter"] as const) {
  const rules = Array.from({ length: ports }, (_, i) => rulesOf(i + 1)).flat();
  const lines = rules.filter(([of]) => of === table).map(([, rule]) => `-A ${rule}\n`);
  const input = `*${table}\n:HYPER - [0:0]\n${lines.join("")}COMMIT\n`;
  const { status, stderr } = spawnSync("iptables-restore", ["--noflush"], { input });
  if (status !== 0) throw new Error(String(stderr));
}
console.log("ready");

const iptables = (table: Table, words: string): Promise<unknown> =>
  exec("iptables", ["-t", table, ...words.split(" ")], { maxBuffer: 1 << 24 });

for await (const _line of createInterface({ input: process.stdin })) {
  const rules = rulesOf(ports + 1);
  const begin = performance.now();
  await iptables("nat", "-S HYPER");
  for (const [table, rule] of rules) await iptables(table, `-I ${rule}`);
  const took = performance.now() - begin;
  for (const [table, rule] of rules) await iptables(table, `-D ${rule}`);
  console.log(took);
}
