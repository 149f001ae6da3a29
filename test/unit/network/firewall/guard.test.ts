import test from "ava";
import { macFromRandom } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { IfName } from "../../../../core/names.ts";
import { isOurGroup, portGroup } from "../../../../network/model/desired.ts";
import { Guard } from "../../../../network/firewall/guarded.ts";
import { Memory } from "../../../../network/kernel/memory.ts";
import { guardTables } from "../../../../network/firewall/nftables/guard-tables.ts";
import { RuleTable } from "../../../../network/firewall/nftables/rule-table.ts";
import type { NftablesSource } from "../../../../network/kernel/kernel.ts";
import { networkFragment } from "../../../lab/network.ts";
import { kernelDoor, openDoor } from "../../../sim/kernel/door.ts";
import { FakeKernel } from "../../../sim/kernel/kernel.ts";

const { signal } = new AbortController();

const working = (): NftablesSource =>
  kernelDoor(new FakeKernel(() => macFromRandom(new Uint8Array(6))), openDoor, "fake").nftables;

const refusing = (nft: string): NftablesSource => {
  const source = working();
  const commit = (): Promise<never> =>
    Promise.reject(new PodnetError("FIREWALL_FAILED", `nftables: ${nft}`, { details: { nft } }));
  return { ...source, open: () => ({ ...source.open(), commit }) };
};

const absent: NftablesSource = {
  ...working(),
  open: () => {
    throw new PodnetError("FIREWALL_FAILED", "libnftables.so.1 cannot be loaded", {
      details: { errno: "ENOENT" },
    });
  },
};

/**
 * How many changes a network takes at first, and again once they have been tried; and why parts are
 * not in force.
 */
async function tried(source: NftablesSource) {
  const memory = new Memory("here");
  const tables = guardTables.map((model) => new RuleTable(source, memory, model));
  const guard = new Guard(tables, memory, { off: false, hostSeed: "test" });
  const network = networkFragment();
  const changes = await guard.compareNetwork(network, signal);
  for (const change of changes)
    if (change.kind === "nftables")
      await tables.find(({ model }) => model.name === change.table)?.commit(change);
  const again = await guard.compareNetwork(network, signal);
  return { first: changes.length, again: again.length, lacking: guard.lacking, memory };
}

test("a host that lacks what the guard takes does without it, and says so; any other failure is one", async (t) => {
  const works = await tried(working());
  t.deepEqual([works.first, works.again, works.lacking], [3, 0, []]);
  t.true(guardTables.every(({ name }) => works.memory.madeTable(name)));
  for (const nft of [
    "Error: Could not process rule: Operation not supported",
    "Error: Could not process rule: No such file or directory",
  ]) {
    const { first, again, lacking, memory } = await tried(refusing(nft));
    t.deepEqual([first, again, lacking.length], [3, 0, 3], nft);
    t.regex(
      lacking.join(),
      /guard at bridges' ports.*guard of the host and of the cloud's metadata/,
    );
    t.false(guardTables.some(({ name }) => memory.madeTable(name)));
  }
  const none = await tried(absent);
  t.deepEqual([none.first, none.again, none.lacking.length], [0, 0, 3]);
  await t.throwsAsync(tried(refusing("Error: Operation not permitted")), {
    code: "FIREWALL_FAILED",
  });
});

test("ports have a link group of their bridge's, which is podnet's and no other's", (t) => {
  const groups = Array.from({ length: 1000 }, (_, i) => portGroup(`br${i}` as IfName));
  t.is(new Set(groups).size, groups.length);
  t.true(groups.every((group) => isOurGroup(group) && group >= 2 ** 30 && group < 2 ** 31));
  t.deepEqual([0, 1, 73, 74, 2 ** 31, 2 ** 32 - 1].map(isOurGroup), [
    false,
    false,
    true,
    false,
    false,
    false,
  ]);
});

test("a change of another program between a look and a commit is seen by the next look", async (t) => {
  const looksAfter = async (others: number): Promise<number> => {
    const source = working();
    let [more, looks] = [0, 0];
    const counted: NftablesSource = {
      open: () => {
        const nftables = source.open();
        const list: typeof nftables.list = (...asked) => {
          looks++;
          return nftables.list(...asked);
        };
        return { ...nftables, list };
      },
      openCounter: () => {
        const counter = source.openCounter();
        return { ...counter, read: () => (counter.read() ?? 0) + more };
      },
    };
    const memory = new Memory("here");
    const tables = guardTables.map((model) => new RuleTable(counted, memory, model));
    const guard = new Guard(tables, memory, { off: false, hostSeed: "test" });
    const changes = await guard.compareNetwork(networkFragment(), signal);
    more += others;
    const [first] = changes;
    if (first?.kind !== "nftables") throw new Error("The guard has nothing to make");
    const table = tables.find(({ model }) => model.name === first.table);
    await table?.commit(first);
    const before = looks;
    await table?.look(signal);
    await table?.look(signal);
    return looks - before;
  };
  t.is(await looksAfter(0), 0);
  t.is(await looksAfter(1), 1);
});
