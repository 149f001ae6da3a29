/**
 * What a guest sends in the name of another, byte by byte: each frame that is to be stopped,
 * alongside one of its kind that passes, heard by a neighbour, and counted.
 */
import test from "ava";
import { type DropKind, dropKinds } from "../../network/model/drop-kinds.ts";
import { dualPod } from "../lab/firewall-site.ts";
import type { RawFrame } from "../lab/frames.ts";
import {
  cases,
  changed,
  dropped,
  heard,
  last,
  openStage,
  signal,
  texts,
} from "./port-guard-rig.ts";

test.serial(
  "a guest sends nothing in the name of another: each kind of frame is dropped, and counted at its port",
  async (t) => {
    await using site = await openStage();
    for (const [kind, { wrong, right }] of Object.entries(cases)) {
      const before = await dropped(site);
      t.deepEqual(
        await heard(site, [...wrong, ...right, last]),
        [...texts(right), last.text],
        kind,
      );
      const after = await dropped(site);
      const differing = Object.entries(after).flatMap(([each, count]) => {
        const more = count - (before[each as DropKind] ?? 0);
        return more === 0 ? [] : [[each, more]];
      });
      t.deepEqual(differing, [[kind, wrong.length]], kind);
    }
    const drops = await site.host.observe.drops(signal);
    t.deepEqual(
      drops.filter(({ link }) => link !== "tap2"),
      [],
      "nothing of its neighbour's is counted",
    );
  },
);

test.serial("a port without a guard sends anything; with one again, it does not", async (t) => {
  await using site = await openStage(changed(2, { guard: "off" }));
  const all = Object.entries(cases)
    .filter(([kind]) => kind !== "bridge-control")
    // (A bridge leads nothing to a MAC that it has learned at the port itself.)
    .flatMap(([kind, { wrong, right }]) =>
      kind === "mac" ? wrong.slice(1, 2) : [...wrong, ...right],
    );
  t.deepEqual(await heard(site, [...all, last]), [...texts(all), last.text]);
  t.deepEqual(await dropped(site), {});
  await site.ensure(dualPod(2));
  const { wrong, right } = cases.ipv4 as { wrong: RawFrame[]; right: RawFrame[] };
  t.deepEqual(await heard(site, [...wrong, ...right]), texts(right));
  await site.ensure(changed(2, { guard: "off" }));
  t.deepEqual(await heard(site, [...wrong, ...right]), texts([...wrong, ...right]));
});

test("each kind has a number of its own", (t) => {
  const numbers = Object.values(dropKinds).map(({ number }) => number);
  t.is(new Set<number>(numbers).size, numbers.length);
  // (On a network without IPv6, see firewall-guard.test.ts.)
  const covered = new Set([...Object.keys(cases), "no-ipv6"]);
  t.deepEqual(
    Object.keys(dropKinds).filter((kind) => !covered.has(kind)),
    [],
  );
});
