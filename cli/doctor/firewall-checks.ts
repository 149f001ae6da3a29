import { failed, type Finding, ok, warning } from "./finding.ts";
import type { Host } from "./host.ts";

/** What rules are written with, and whose rules keep forwarded packets from pods. */
export async function firewallChecks(host: Host): Promise<Finding[]> {
  return [await variantCheck(host), await dropsCheck(host)];
}

async function variantCheck(host: Host): Promise<Finding> {
  const name = "firewall";
  const iptables = await host.run(["iptables", "--version"]);
  const nft = await host.run(["nft", "--version"]);
  if (iptables === null && nft === null)
    return failed(name, "Neither iptables nor nft is installed", "apt-get install nftables");
  if (iptables === null) return ok(name, `${line(nft?.stdout)}; iptables is not installed`);
  const variant = /nf_tables/.test(iptables.stdout) ? "nft" : "legacy";
  // (Tables of the other variant exist only while a program uses them.)
  const legacy = ((await host.read("/proc/net/ip_tables_names")) ?? "").trim();
  if (variant === "nft" && legacy !== "")
    return warning(
      name,
      `iptables writes to nftables, and other programs use legacy tables too: ${legacy.split("\n").join(", ")}`,
      "A packet must pass both: let all programs use one variant (update-alternatives --config iptables)",
    );
  return ok(name, `iptables-${variant}, ${line(iptables.stdout)}`);
}

const line = (text = ""): string => text.trim().split("\n")[0] ?? "";

async function dropsCheck(host: Host): Promise<Finding> {
  const name = "foreign rules";
  const { uid } = await host.self();
  if (uid !== 0)
    return warning(name, "Only root may read the host's rules", "Run podnet doctor as root");
  const nft = await host.run(["nft", "list", "ruleset"]);
  const legacy = await host.read("/proc/net/ip_tables_names");
  const saved = legacy?.includes("filter") ? await host.run(["iptables-legacy-save"]) : null;
  if (nft === null && saved === null)
    return warning(
      name,
      "nft is not installed, so rules cannot be read",
      "apt-get install nftables",
    );
  if (nft !== null && nft.code !== 0)
    return warning(
      name,
      `nft does not list the rules: ${line(nft.stderr)}`,
      "See nft list ruleset",
    );
  const drops = [...forwardDrops(nft?.stdout ?? ""), ...legacyDrops(saved?.stdout ?? "")];
  if (drops.length === 0) return ok(name, "None drops all that is forwarded");
  return warning(
    name,
    `${drops.join(", ")} drops what no rule there accepts, pods' packets too`,
    `Accept the bridge of the network there, such as: iptables -I FORWARD -i hyper0 -j ACCEPT and -o hyper0; podnet info says whether pods are cut off`,
  );
}

/**
 * Chains at the hook forward that drop by their policy or by a last rule without a condition, in
 * tables of other programs, in what `nft list ruleset` prints.
 */
export function forwardDrops(ruleset: string): string[] {
  const found: string[] = [];
  let table = "";
  let chain = "";
  let atForward = false;
  for (const text of ruleset.split("\n").map((each) => each.trim())) {
    const [, family, name] = /^table (\S+) (\S+) \{$/.exec(text) ?? [];
    if (name !== undefined) table = `${family} ${name}`;
    const [, started] = /^chain (\S+) \{$/.exec(text) ?? [];
    if (started !== undefined) [chain, atForward] = [started, false];
    if (/\bhook forward\b/.test(text)) atForward = true;
    if (!atForward || /\bpodnet\b/.test(table)) continue;
    const drops =
      /; policy drop;/.test(text) || /^(?:counter \S+ \d+ \S+ \d+ )?(?:drop|reject)\b/.test(text);
    const where = `table ${table}, chain ${chain}`;
    if (drops && !found.includes(where)) found.push(where);
  }
  return found;
}

/** Chains as above, in what `iptables-legacy-save` prints. */
function legacyDrops(saved: string): string[] {
  return /^:FORWARD DROP\b/m.test(saved) ? ["legacy table filter, chain FORWARD"] : [];
}
