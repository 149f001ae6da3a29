import path from "node:path";
import { run } from "../../../linux/processes/command.ts";
import {
  dualNetwork,
  dualPod,
  FirewallSite,
  outsideAddress,
} from "../../../test/lab/firewall-site.ts";
import { row, summarise } from "../../measure.ts";

const bursts = 400;
const ways = {
  "pod to outside": ["pod2", "192.168.123.2", "outside", outsideAddress[4]],
  "pod to pod": ["pod2", "192.168.123.2", "pod3", "192.168.123.3"],
  "host to pod": ["host", "192.168.123.1", "pod2", "192.168.123.2"],
} as const;

/**
 * Nanoseconds that podnet's rules take of a small packet of a known connection, there and back,
 * summed up. Pods are namespaces here. With and without the rules take turns; a table that is
 * dormant is not met by packets. The program has a processor to itself meanwhile.
 */
export async function measurePackets(
  directory: string,
  rounds: number,
): Promise<Record<string, number>> {
  const program = path.join(directory, "packets");
  const source = path.join(import.meta.dirname, "packets.c");
  await run(["cc", "-O2", "-Wall", "-Werror", "-static", "-o", program, source]);
  await using site = await FirewallSite.open({ firewall: "nftables", iptables: "auto" });
  for (const n of [2, 3]) await site.pod(n);
  await site.ensure(dualNetwork(), dualPod(2), dualPod(3));
  const said = await site.inside("host", "nft", "list", "tables");
  const tables = [...said.matchAll(/^table (.*podnet.*)$/gm)].map(([, name]) => name as string);
  const sleep = (isDormant: boolean) => {
    const lines = tables.map(
      (name) => `add table ${name} { ${isDormant ? "flags dormant;" : ""} }`,
    );
    return run(["nft", "-f", "-"], { stdin: `${lines.join("\n")}\n` });
  };
  const place = (machine: string): string =>
    machine === "host" ? "/proc/self/ns/net" : `/run/netns/${site.namespaceOf(machine)}`;
  const cost = async ([from, address, to, other]: readonly [string, string, string, string]) => {
    const argv = [program, place(from), address, place(to), other, `${bursts}`] as const;
    const { stdout } = await run(["chrt", "-f", "1", ...argv]);
    const [there = Number.NaN, back = Number.NaN] = stdout.trim().split(" ").map(Number);
    return there + back;
  };
  row("a small packet there and back, ns", "podnet", "no rules", "rules");
  const figures: Record<string, number> = {};
  for (const [title, way] of Object.entries(ways)) {
    const found: { readonly ours: number; readonly bare: number }[] = [];
    for (let round = 0; round < rounds; round++) {
      const ours = await cost(way);
      await sleep(true);
      found.push({ ours, bare: await cost(way) });
      await sleep(false);
    }
    const median = (of: (each: (typeof found)[number]) => number): number =>
      summarise(found.map(of)).median;
    const rules = median(({ ours, bare }) => ours - bare);
    row(
      `  ${title}`,
      median(({ ours }) => ours),
      median(({ bare }) => bare),
      rules,
    );
    figures[`${title.replaceAll(" ", "_")}_ns`] = rules;
  }
  return figures;
}
