import { openNftables } from "../../../linux/nftables/libnftables.ts";
import { commands } from "../../../network/firewall/nftables/edit.ts";
import { elementChanges } from "../../../network/firewall/nftables/element-changes.ts";
import { modelOf } from "../../../network/firewall/nftables/guard-tables.ts";
import { portElements } from "../../../network/firewall/nftables/port-elements.ts";
import type { Element } from "../../../network/model/nftables-sets.ts";
import type { NftablesEdit } from "../../../network/model/rules.ts";
import { row, summarise } from "../../measure.ts";
import { crowded } from "./changes.ts";
import { openGuardedHost, other } from "./guarded-host.ts";

const model = modelOf("bridge podnet");
const changesARound = 100;

type Way = "ours" | "libnftables";
const add = (elements: readonly Element[]): NftablesEdit => ({
  base: "keep",
  remove: [],
  add: elements,
});
const remove = (elements: readonly Element[]): NftablesEdit => ({
  base: "keep",
  remove: elements,
  add: [],
});

/**
 * Milliseconds of a transaction that changes elements of the guard next to 1,000 pods, by messages
 * of our own and by libnftables in turn: each removes what the other has added.
 */
export async function measureElements(rounds: number): Promise<Record<string, number>> {
  await using _host = await openGuardedHost(crowded);
  const nftables = openNftables();
  const ways: Readonly<Record<Way, (edit: NftablesEdit) => Promise<void>>> = {
    ours: (edit) => nftables.change("bench", model.name, elementChanges(edit, model) ?? []),
    libnftables: (edit) => nftables.commit("bench", commands(edit, model).join("\n")),
  };
  const measure = async (elements: readonly Element[]): Promise<Record<Way, number[]>> => {
    const found: Record<Way, number[]> = { ours: [], libnftables: [] };
    for (let i = 0; i <= rounds * changesARound; i++) {
      const [one, two] =
        i % 2 === 0 ? (["ours", "libnftables"] as const) : (["libnftables", "ours"] as const);
      for (const [way, edit] of [
        [one, add],
        [two, remove],
        [two, add],
        [one, remove],
      ] as const) {
        const begin = performance.now();
        await ways[way](edit(elements));
        // (The first changes warm up.)
        if (i > 0) found[way].push(performance.now() - begin);
      }
    }
    return found;
  };
  const all = portElements(other(crowded.pods + 1));
  try {
    const element = await measure(all.slice(0, 1));
    const pod = await measure(all);
    row("ms of a transaction", "ours p50", "p99", "nft p50", "p99");
    show("one element of the guard", element);
    show(`all ${all.length} of a pod's`, pod);
    return {
      element_ms: summarise(element.ours).median,
      element_nft_ms: summarise(element.libnftables).median,
      pod_elements_ms: summarise(pod.ours).median,
      pod_elements_nft_ms: summarise(pod.libnftables).median,
    };
  } finally {
    nftables.close();
  }
}

function show(title: string, found: Readonly<Record<Way, readonly number[]>>): void {
  const figures = [found.ours, found.libnftables].map(summarise);
  row(title, ...figures.flatMap(({ median, p99 }) => [median.toFixed(3), p99.toFixed(3)]));
}
