import test from "ava";
import { run } from "../../linux/processes/command.ts";
import { type Nftables, openNftables } from "../../linux/nftables/libnftables.ts";
import { nftablesGeneration } from "../../linux/nftables/nftables-generation.ts";
import type { ElementChange } from "../../linux/nftables/set-elements.ts";
import { mainTable, makeBase, type TableModel } from "../../network/firewall/nftables/base.ts";
import { addVerb } from "../../network/firewall/nftables/edit.ts";
import { declarationOf } from "../../network/firewall/nftables/element-changes.ts";
import { guardTables } from "../../network/firewall/nftables/guard-tables.ts";
import { learnTable } from "../../network/firewall/nftables/learn-table.ts";
import { policedPortsTable } from "../../network/firewall/nftables/policed-ports.ts";
import { policyTable } from "../../network/firewall/nftables/policy-table.ts";
import { publishedTable } from "../../network/firewall/nftables/published-table.ts";
import { sendersTable } from "../../network/firewall/nftables/senders-table.ts";
import { kindOf, type SetName } from "../../network/model/nftables-sets.ts";
import { ownNetns } from "../lab/netns.ts";
import { changeCommands } from "../sim/kernel/door.ts";

const tables: readonly TableModel[] = [
  mainTable,
  ...guardTables,
  sendersTable,
  publishedTable,
  policyTable,
  policedPortsTable,
  learnTable,
];

test.beforeEach(ownNetns);

/** Values of nft's types, of which no two overlap. */
const single: Readonly<Record<string, readonly string[]>> = {
  ifname: ['"tap2"', '"a-link.of15char"', '"x"'],
  ipv4_addr: ["10.1.2.3", "192.168.255.255", "0.0.0.1"],
  ipv6_addr: ["fd00::1", "2001:db8:1:2:3:4:5:6", "::1"],
  inet_proto: ["6", "17", "132"],
  inet_service: ["80", "65535", "1"],
  ether_type: ["0x88cc", "0x86dd", "0x5"],
  devgroup: ["2036822107", "73", "1073741824"],
  classid: ["4b1a:9", "4000:ffff", "7fff:1"],
  "@ll,48,48": ["0x525400000102", "0xfe", "0x100000000000"],
  "@nh,64,128": ["0xfe800000000000005054000000000102", "0x1", "0xfd00000000000000000000000000ff"],
};
const ranges: Readonly<Record<string, readonly string[]>> = {
  ipv4_addr: ["10.0.0.0/8", "192.168.1.0/24", "172.16.0.1", "240.0.0.0/4"],
  ipv6_addr: ["fd00::/64", "2001:db8::/33", "::1", "ff00::/8"],
  inet_service: ["8000-8010", "53", "60000-65535", "1-2"],
};

/** Elements of a set, of all kinds that it takes. */
function samples(set: SetName): ElementChange[] {
  const declaration = declarationOf(set);
  const { types, value, interval } = declaration;
  const word = (type: string, i: number): string => {
    const values = (interval === true ? ranges[type] : undefined) ?? single[type] ?? [];
    return values[i % values.length] ?? `no value of ${type}`;
  };
  const count = interval === true ? 4 : 3;
  return Array.from({ length: count }, (_, i) => {
    const given = value?.map((type) => (type === "verdict" ? "jump policy_x" : word(type, i)));
    return {
      verb: addVerb(set),
      set: declaration,
      key: types.map((type) => word(type, i)).join(" . "),
      ...(given === undefined ? {} : { value: given.join(" . ") }),
      // (The last one bears no mark, as another program's.)
      ...(i === count - 1 ? {} : { comment: `podnet:pod:podaaaaaaaa${i}:0` }),
    };
  });
}

const own = ({ sets }: TableModel): SetName[] => sets.filter((set) => kindOf(set).counted !== true);

const deletions = (changes: readonly ElementChange[]): ElementChange[] =>
  changes.map(({ set, key }) => ({ verb: "delete", set, key }));

async function opened(t: { teardown(end: () => void): void }): Promise<Nftables> {
  const nftables = openNftables();
  t.teardown(() => nftables.close());
  for (const model of tables) {
    const leads = model.sets.some((set) => kindOf(set).value === "verdict");
    const chain = leads ? [`add chain ${model.name} policy_x`] : [];
    await nftables.commit("make", [...makeBase(model), ...chain].join("\n"));
  }
  return nftables;
}

/** What the program nft says that a set has, an element a line. */
async function elements(model: TableModel, set: SetName): Promise<string[]> {
  const kind = kindOf(set).value === undefined ? "set" : "map";
  const { stdout } = await run(["nft", "-j", "list", kind, ...model.name.split(" "), set]);
  const { nftables } = JSON.parse(stdout) as { nftables: { set?: Json; map?: Json }[] };
  const listed = nftables.map((each) => each.set ?? each.map).find((each) => each !== undefined);
  return (listed?.elem ?? []).map((each) => JSON.stringify(each)).toSorted();
}
type Json = { readonly elem?: readonly unknown[] };

test.serial(
  "nft reads what we have written, of each set of all tables, and removes it",
  async (t) => {
    const nftables = await opened(t);
    for (const model of tables)
      for (const set of own(model)) {
        const some = samples(set);
        await nftables.commit("add", changeCommands(model.name, some));
        const theirs = await elements(model, set);
        t.is(theirs.length, some.length, `${model.name} ${set}`);
        await nftables.commit("delete", changeCommands(model.name, deletions(some)));
        t.deepEqual(await elements(model, set), [], set);
        await nftables.change("add", model.name, some);
        t.deepEqual(await elements(model, set), theirs, `${model.name} ${set}`);
        await nftables.commit("delete", changeCommands(model.name, deletions(some)));
        t.deepEqual(await elements(model, set), [], set);
      }
  },
);

test.serial("we remove what nft has written, of each set, and leave what was there", async (t) => {
  const nftables = await opened(t);
  for (const model of tables)
    for (const set of own(model)) {
      const [first, ...others] = samples(set);
      if (first === undefined) continue;
      await nftables.commit("add", changeCommands(model.name, [first]));
      const stays = await elements(model, set);
      await nftables.commit("add", changeCommands(model.name, others));
      await nftables.change("delete", model.name, deletions(others));
      t.deepEqual(await elements(model, set), stays, `${model.name} ${set}`);
      await nftables.change("add", model.name, others);
      await nftables.change("delete", model.name, deletions([first]));
      t.is((await elements(model, set)).length, others.length, set);
    }
});

test.serial(
  "a transaction is made whole, or not at all with the element that is refused",
  async (t) => {
    const nftables = await opened(t);
    const table = "inet podnet";
    const [one, two, three] = samples("everywhere4");
    if (one === undefined || two === undefined || three === undefined) throw new Error("Too few");
    const before = nftablesGeneration() ?? 0;
    await nftables.change("add elements", table, [one, two]);
    t.is(nftablesGeneration(), before + 1);
    const has = await elements(mainTable, "everywhere4");
    t.is(has.length, 2);
    // One that is there already is not written over, by another value or by its own.
    for (const again of [one, { ...one, value: "10.9.9.9 . 1" }]) {
      const error = await t.throwsAsync(nftables.change("add elements", table, [three, again]), {
        code: "FIREWALL_FAILED",
      });
      t.regex(error?.message ?? "", /add elements: element \{ 6 \. 80 \} of everywhere4: EEXIST/);
      t.like(error, { details: { kernel: "EEXIST", set: "everywhere4", key: "6 . 80" } });
    }
    const absent = await t.throwsAsync(
      nftables.change("remove elements", table, deletions([one, three, two])),
      { code: "FIREWALL_FAILED" },
    );
    t.like(absent, { details: { kernel: "ENOENT", key: three.key } });
    t.deepEqual(await elements(mainTable, "everywhere4"), has);
    t.is(nftablesGeneration(), before + 1);
  },
);

test.serial(
  "an element is replaced in one transaction, and may be added again where it has no value",
  async (t) => {
    const nftables = await opened(t);
    const table = "inet podnet";
    const [one] = samples("everywhere4");
    if (one === undefined) throw new Error("None");
    await nftables.change("add elements", table, [one]);
    const before = nftablesGeneration() ?? 0;
    await nftables.change("replace", table, [
      ...deletions([one]),
      { ...one, value: "10.9.9.9 . 1" },
    ]);
    t.is(nftablesGeneration(), before + 1);
    t.regex((await elements(mainTable, "everywhere4")).join("\n"), /10\.9\.9\.9/);
    const opens = samples("opened4");
    await nftables.change("add elements", table, opens);
    await nftables.change("add elements", table, opens);
    await nftables.change("nothing", table, []);
    const other = nftables.change("add elements", "inet podnet_absent", opens);
    t.like(await t.throwsAsync(other), { details: { kernel: "ENOENT" } });
  },
);

test.serial(
  "a set that is full refuses more, and words that are no value of it are refused",
  async (t) => {
    const nftables = await opened(t);
    await nftables.commit("make", "add set inet podnet small { type inet_service; size 2; }");
    const set = { name: "small", types: ["inet_service"] };
    const ports = (...keys: string[]): ElementChange[] =>
      keys.map((key) => ({ verb: "add", set, key }));
    await nftables.change("add elements", "inet podnet", ports("1", "2"));
    const error = await t.throwsAsync(nftables.change("add elements", "inet podnet", ports("3")));
    t.like(error, { details: { kernel: "ENFILE", key: "3" } });
    for (const key of ["70000", "x", "1 . 2"])
      await t.throwsAsync(nftables.change("add elements", "inet podnet", ports(key)), {
        code: "FIREWALL_FAILED",
      });
  },
);

test.serial("several hundred elements are one message", async (t) => {
  const nftables = await opened(t);
  const set = declarationOf("addresses6");
  const many = Array.from(
    { length: 256 },
    (_, i): ElementChange => ({
      verb: "add",
      set,
      key: `"tap${i}" . 0xfd0000000000000000000000000${(i + 4096).toString(16)}`,
      comment: `podnet:pod:podaaaaaaaa${i}:0`,
    }),
  );
  const before = nftablesGeneration() ?? 0;
  await nftables.change("add elements", "bridge podnet", many);
  t.is(nftablesGeneration(), before + 1);
  const [guard] = guardTables;
  t.is((await elements(guard, "addresses6")).length, 256);
  await nftables.change("remove elements", "bridge podnet", deletions(many));
  t.is((await elements(guard, "addresses6")).length, 0);
});
