import type { Machine } from "./lab.ts";

/**
 * The settings that podnetd makes, and their neighbours. (`sysctl -a -r` walks through all there
 * are: it takes seven times as long.)
 */
const sysctlPaths = [
  "ipv4/ip_forward",
  ...["ipv4", "ipv6"].flatMap((family) => ["all", "default"].map((of) => `${family}/conf/${of}`)),
];

/** What saves the rules of each iptables there is. */
export const savers = ["iptables", "ip6tables"].flatMap((family) =>
  ["nft", "legacy"].map((variant) => `${family}-${variant}-save` as const),
);

/** What is asked of the host. */
const commands = {
  addresses: "ip -j -d address show",
  routes4: "ip -j -4 route show table all",
  routes6: "ip -j -6 route show table all",
  // Of the lab's own links neighbours come and go.
  neighbours: "ip -j neighbour show",
  ...Object.fromEntries(savers.map((saver) => [saver, saver])),
  // (The tables of iptables-nft are of other families.)
  nft: "nft --stateless list ruleset inet",
  // (Some may be written only, which is no failure.)
  sysctls: `cd /proc/sys/net && { grep -rs "" ${sysctlPaths.join(" ")} || test $? -eq 2; }`,
} as const;

/** What each command has written, by its name. */
export type Shown = ReadonlyMap<string, string>;

/** What separates the outputs of commands: the byte that ASCII has for it. */
const separator = "\x1e";

/**
 * Asks a machine for all that an inventory compares of it; rejects when a command fails. One
 * process enters the namespace for all of them, which takes longer than most of them do.
 */
export async function shownBy(machine: Machine): Promise<Shown> {
  const script = Object.values(commands).join("\nprintf '\\036'\n");
  const outputs = (await machine.run("sh", "-e", "-c", script)).split(separator);
  return new Map(Object.keys(commands).map((name, at) => [name, outputs[at] ?? ""]));
}
