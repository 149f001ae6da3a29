import test from "ava";
import { ownNetns } from "../lab/netns.ts";
import { openRig } from "../vm/daemon-rig.ts";
import { debianGuest, never, nicPlan, plugTap, rig } from "../vm/hypervisor-rig.ts";
import { complete, type Footprint, footprint, linkNames, noteCycles } from "./measure.ts";

const podCycles = complete ? 500 : 20;
const replugs = complete ? 5000 : 100;
/** Cycles after which caches are warm and pools full: growth is counted from there. */
const warmUp = 5;
/** What memory may grow by, KiB: a collector's mood, not a leak. A leak of one QMP reply per cycle is above it in a full run. */
const moodKib = 48 * 1024;

/** What has grown, in words. */
function grown(who: string, before: Footprint, after: Footprint): string[] {
  return [
    after.descriptors > before.descriptors
      ? `${who}: ${after.descriptors - before.descriptors} descriptors`
      : "",
    after.residentKib > before.residentKib + moodKib
      ? `${who}: ${after.residentKib - before.residentKib} KiB`
      : "",
  ].filter((line) => line !== "");
}

test.serial(`${podCycles} pods created and deleted leave nothing`, async (t) => {
  await using it = await openRig("quarantine_s = 0\n");
  const pid = it.daemon.process.pid as number;
  let warm: Footprint | undefined;
  for (let cycle = 0; cycle < podCycles; cycle++) {
    const name = `soak-${cycle}`;
    await it.client.pods.create({ spec: { name } });
    await it.client.pods.delete({ idOrName: name });
    if (cycle === warmUp) {
      // Also waits for what closes a little later, and shows that the first cycles were clean.
      t.deepEqual(await it.changes(), []);
      warm = footprint(pid);
    }
  }
  const left = [...(await it.changes()), ...grown("podnetd", warm as Footprint, footprint(pid))];
  t.log(`podnetd: ${JSON.stringify(warm)} → ${JSON.stringify(footprint(pid))}`);
  noteCycles("pods", podCycles, left.length);
  t.deepEqual(left, []);
});

test.serial(`${replugs} replugs of NICs on one machine leave nothing`, async (t) => {
  await ownNetns();
  await using it = await rig(debianGuest);
  const { vm, events } = await it.start();
  while ((await events.next("channel")).port !== 0) events.seen.shift();
  const links = linkNames();
  const qemu = vm.record.pid;
  let warm: readonly [Footprint, Footprint] | undefined;
  for (let cycle = 0; cycle < replugs; cycle++) {
    // Slots in turn, and the same one over and over: both are ways to run out.
    const nic = nicPlan(cycle % 2 === 0 ? 1 : 1 + (cycle % 31));
    await plugTap(vm, nic);
    t.is(await vm.unplug(nic, never), "unplugged", `cycle ${cycle}`);
    if (cycle === warmUp * 10) warm = [footprint(process.pid), footprint(qemu)];
  }
  const [own, theirs] = warm as readonly [Footprint, Footprint];
  const left = [
    ...linkNames().filter((name) => !links.includes(name)),
    ...(await vm.nics(never)),
    ...events.seen.filter(({ kind }) => kind === "nic-removed").map(({ kind }) => kind),
    ...grown("this process", own, footprint(process.pid)),
    ...grown("QEMU", theirs, footprint(qemu)),
  ];
  t.log(`QEMU: ${JSON.stringify(theirs)} → ${JSON.stringify(footprint(qemu))}`);
  await vm.stop({ graceMs: 0 });
  noteCycles("replugs", replugs, left.length);
  t.deepEqual(left, []);
});
