import test from "ava";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { deviationText } from "../../network/model/deviation.ts";
import { type Inspection, onlyLook } from "../../network/bridge/inspect.ts";
import { joinNamespace, leaveNamespace } from "../../network/tc-redirect/redirect.ts";
import { inspectJoin } from "../../network/tc-redirect/repair.ts";
import { AttachmentSite } from "../lab/attachment-site.ts";

const { signal } = new AbortController();

let site: AttachmentSite;
test.before(async () => {
  site = await AttachmentSite.open();
  await site.container(2);
  await site.attachments.ensure(site.fragment(2), signal);
});
test.after.always(() => site[Symbol.asyncDispose]());

const desired = () => ({
  netns: `/run/netns/${site.name(2)}`,
  link: "eth0",
  tap: "vm2" as IfName,
});
const look = (): Promise<Inspection> => inspectJoin(desired(), onlyLook, signal);
const heal = (): Promise<Inspection> => inspectJoin(desired(), () => true, signal);
const does = (words: string): Promise<number> => {
  const [program = "", ...rest] = words.split(" ");
  return site.does(2, [program, ...rest]);
};

const harms: readonly (readonly [what: string, harm: readonly string[], says: string])[] = [
  [
    "the link's ingress",
    ["tc qdisc del dev eth0 ingress"],
    "what comes in by eth0 is not led on, should be led to vm2",
  ],
  [
    "the tap's redirection",
    ["tc filter del dev vm2 ingress"],
    "what comes in by vm2 is not led on, should be led to eth0",
  ],
  ["the link's state", ["ip link set eth0 down"], "link eth0 state is down, should be up"],
  ["the tap's state", ["ip link set vm2 down"], "link vm2 state is down, should be up"],
  [
    "the place of the redirection",
    [
      "tc filter del dev eth0 ingress",
      "tc filter add dev eth0 ingress prio 1 u32 match u8 0 0 action mirred egress redirect dev lo",
    ],
    "what comes in by eth0 is led elsewhere, should be led to vm2",
  ],
];

test.serial("what others take of a join is put back; a look alone changes nothing", async (t) => {
  const { tap } = await joinNamespace(desired(), signal);
  await using _tap = tap;
  t.deepEqual((await look()).found, []);
  for (const [what, harm, says] of harms) {
    for (const words of harm) t.is(await does(words), 0, words);
    for (const seen of [await look(), await heal()])
      t.deepEqual([seen.found.map(deviationText), seen.error], [[says], undefined], what);
    t.like(await look(), { found: [], healed: true, error: undefined }, what);
  }
  await leaveNamespace(desired());
});

test.serial("what others put alongside a join stays", async (t) => {
  const { tap } = await joinNamespace(desired(), signal);
  await using _tap = tap;
  const alongside = "prio 7 u32 match u8 0 0 action mirred egress redirect dev lo";
  t.is(await does(`tc filter add dev eth0 ingress ${alongside}`), 0);
  await does("ip address add 10.1.2.3/24 dev eth0");
  await does("ip link set eth0 mtu 1300");
  t.deepEqual((await look()).found, []);
  await does("tc filter del dev eth0 ingress prio 1");
  t.is((await heal()).found.length, 1);
  t.deepEqual((await look()).found, []);
  const namespace = ["ip", "netns", "exec", site.name(2)] as const;
  const { stdout } = await run([...namespace, "tc", "filter", "show", "dev", "eth0", "ingress"]);
  t.regex(stdout, /pref 1 [^]*device vm2[^]*pref 7 [^]*device lo/);
  const shown = await site.inside(2, "address show eth0");
  t.regex(shown, /mtu 1300[^]*10\.1\.2\.3/);
  await leaveNamespace(desired());
});

test.serial("nothing is made where there is no machine, no link or no namespace", async (t) => {
  const { tap } = await joinNamespace(desired(), signal);
  await site.inside(2, "link set eth0 down");
  await site.inside(2, "link set eth0 name eth7");
  t.is((await heal()).error?.code, "INTERFACE_NOT_FOUND");
  await site.inside(2, "link set eth7 name eth0");
  await tap.close();
  const alone = await heal();
  t.is(alone.error?.code, "NETLINK_FAILED");
  t.is(alone.error?.details["errno"], "ENODEV");
  t.notRegex(await site.inside(2, "link show eth0"), /[<,]UP/, "it is not the machine's any more");
  await leaveNamespace(desired());
  const gone = { ...desired(), netns: "/run/netns/none" };
  const { error, found } = await inspectJoin(gone, () => true, signal);
  t.deepEqual([error?.code, found], ["NETNS_UNUSABLE", []]);
});
