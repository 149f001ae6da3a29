import { isPodnetError } from "../../core/errors.ts";
import { type Family, familyOf } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { NetworkFragment } from "../model/desired.ts";
import { parseSave } from "./iptables/save-format.ts";
import type { HostKernel } from "../kernel/kernel.ts";
import { mainTableName } from "../model/rules.ts";
import { entriesOf, objectOf, textOf } from "./nftables/listing.ts";
import type { Obstacle } from "../model/obstacle.ts";

/** Networks as far as it takes to say whether a chain is in their way. */
type Reached = Pick<NetworkFragment, "bridge" | "gateways">;
type Words = Readonly<Record<string, unknown>>;

interface Chain {
  readonly family: string;
  readonly table: string;
  readonly name: string;
  readonly policy: string;
}

const familiesOf: Readonly<Record<string, readonly Family[]>> = { ip: [4], ip6: [6], inet: [4, 6] };

/**
 * Looks for chains that would drop packets to pods which podnet's own table accepts: with nftables,
 * every table can drop a packet. Lists only the rules of tables that filter forwarded packets.
 * Throws `FIREWALL_FAILED`.
 */
export async function observeObstacles(
  { nftables, iptables }: Pick<HostKernel, "nftables" | "iptables">,
  networks: readonly Reached[],
  signal: AbortSignal,
): Promise<Obstacle[]> {
  const opened = nftables.open();
  using _opened = { [Symbol.dispose]: () => opened.close() };
  const found: Obstacle[] = [];
  for (const chain of forwardChains(await opened.list("list chains", "list chains"))) {
    const { family, table: name } = chain;
    const rules = await listed(() => opened.list("list table", `list table ${family} ${name}`));
    if (rules === undefined) continue;
    const of = networks.filter(({ gateways }) =>
      gateways.some((gateway) => familiesOf[family]?.includes(familyOf(gateway))),
    );
    const bridges = of.map(({ bridge }) => bridge).filter((bridge) => drops(rules, chain, bridge));
    if (bridges.length > 0) found.push(obstacle(chain, bridges));
  }
  return [...found, ...(await legacyObstacle(iptables, networks, signal))];
}

/** A table that was deleted between two looks blocks nothing. */
async function listed(list: () => Promise<string>): Promise<string | undefined> {
  try {
    return await list();
  } catch (error) {
    if (isPodnetError(error, "FIREWALL_FAILED")) return undefined;
    throw error;
  }
}

/** The foreign chains that forwarded packets pass. Pure. */
export function forwardChains(text: string): Chain[] {
  return entriesOf(text).flatMap((entry) => {
    const { hook, ...of } = objectOf(entry["chain"]) ?? {};
    const [family, name, chain, policy] = ["family", "table", "name", "policy"].map((key) =>
      textOf(of[key]),
    ) as [string, string, string, string];
    if (hook !== "forward" || `${family} ${name}` === mainTableName) return [];
    return Object.hasOwn(familiesOf, family) ? [{ family, table: name, name: chain, policy }] : [];
  });
}

/**
 * Whether a chain drops what is sent to a bridge: it drops packets that no rule accepts, and no
 * rule accepts these. Pure.
 */
export function drops(text: string, { name, policy }: Chain, bridge: IfName): boolean {
  const rules = entriesOf(text).flatMap(({ rule }) => {
    const { chain, expr } = objectOf(rule) ?? {};
    if (!Array.isArray(expr)) return [];
    return [
      { chain: textOf(chain), words: expr.map(objectOf).filter((each) => each !== undefined) },
    ];
  });
  const come = [name];
  for (const chain of come)
    for (const { words } of rules.filter((each) => each.chain === chain))
      for (const { jump, goto } of words) {
        const target = textOf(objectOf(jump ?? goto)?.["target"]);
        if (target !== "" && !come.includes(target)) come.push(target);
      }
  const mine = rules.filter(({ chain }) => come.includes(chain));
  if (mine.some(({ words }) => verdict(words) === "accept" && meets(words, bridge))) return false;
  const all = mine.filter(({ chain, words }) => chain === name && conditions(words).length === 0);
  return policy === "drop" || all.some(({ words }) => verdict(words) === "drop");
}

function verdict(words: readonly Words[]): "accept" | "drop" | undefined {
  if (words.some((word) => "accept" in word)) return "accept";
  return words.some((word) => "drop" in word || "reject" in word) ? "drop" : undefined;
}

const conditions = (words: readonly Words[]): readonly Words[] =>
  words.filter((word) => "match" in word || "xt" in word || "vmap" in word || "limit" in word);

/**
 * Whether a rule matches every new connection to the bridge: it has no other condition than the
 * bridge.
 */
const meets = (words: readonly Words[], bridge: IfName): boolean =>
  conditions(words).every((word) => {
    const text = JSON.stringify(word);
    const named = (key: string): boolean => text.includes(`{"meta":{"key":"${key}"}}`);
    if (named("oifname") || named("oif")) return text.includes(`"${bridge}"`);
    return text.includes('{"ct":{"key":"status"}}') && text.includes('"dnat"');
  });

function obstacle({ family, table: of, name }: Chain, bridges: readonly IfName[]): Obstacle {
  const [bridge] = bridges;
  const command = { ip: "iptables", ip6: "ip6tables" }[family];
  // Tables that iptables-nft makes are changed by it.
  const remedy =
    command !== undefined && of === "filter" && name === "FORWARD"
      ? `${command} -I FORWARD -o ${bridge} -j ACCEPT; ${command} -I FORWARD -i ${bridge} -j ACCEPT`
      : `nft insert rule ${family} ${of} ${name} oifname ${bridge} accept; nft insert rule ${family} ${of} ${name} iifname ${bridge} accept`;
  return { where: `table ${family} ${of}, chain ${name}`, bridges, remedy };
}

async function legacyObstacle(
  iptables: HostKernel["iptables"],
  networks: readonly Reached[],
  signal: AbortSignal,
): Promise<Obstacle[]> {
  if (!legacyTables(iptables).split("\n").includes("filter")) return [];
  const filter = parseSave(await iptables.save("legacy", signal)).get("filter");
  if (filter?.chains.get("FORWARD") !== "DROP") return [];
  const accepted = (bridge: IfName): boolean =>
    filter.rules.some(({ chain, text }) => {
      const accepts = chain === "FORWARD" && text.endsWith("-j ACCEPT");
      return accepts && [`-o ${bridge} -j ACCEPT`, "-j ACCEPT"].includes(text.trim());
    });
  const bridges = networks
    .filter(({ gateways }) => gateways.some((gateway) => familyOf(gateway) === 4))
    .map(({ bridge }) => bridge)
    .filter((bridge) => !accepted(bridge));
  const [bridge] = bridges;
  if (bridge === undefined) return [];
  const remedy = ["-o", "-i"]
    .map((way) => `iptables-legacy -I FORWARD ${way} ${bridge} -j ACCEPT`)
    .join("; ");
  return [{ where: "iptables-legacy, table filter, chain FORWARD", bridges, remedy }];
}

/** Empty if the kernel has no iptables-legacy. */
function legacyTables(iptables: HostKernel["iptables"]): string {
  try {
    return iptables.legacyTables();
  } catch {
    return "";
  }
}
