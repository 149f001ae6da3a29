import test from "ava";
import { openTap } from "../../linux/tun.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { ownNetns } from "../lab/netns.ts";
import { difference, ip, networkFragment, podFragment } from "../lab/network.ts";
import { run } from "../../linux/processes/command.ts";
import { openRig } from "../vm/daemon-rig.ts";
import { debianGuest, never, nicPlan, rig } from "../vm/hypervisor-rig.ts";
import { heldBytes } from "./collect.ts";
import { HeldBy } from "./held-by.ts";
import { complete, Growth, noteCycles } from "./measure.ts";

const podCycles = complete ? 500 : 20;
const replugs = complete ? 5000 : 100;

test.serial(`${podCycles} pods created and deleted leave nothing`, async (t) => {
  using watched = new HeldBy();
  await using it = await openRig("quarantine_s = 0\n", undefined, watched.environment);
  const growth = new Growth("podnetd", it.daemon.process.pid as number, () =>
    watched.bytes(it.daemon.process),
  );
  for (let cycle = 0; cycle < podCycles; cycle++) {
    const name = `soak-${cycle}`;
    await it.client.pods.create({ spec: { name } });
    await it.client.pods.delete({ idOrName: name });
    // Also waits for what closes a little later.
    if (cycle === 0) t.deepEqual(await it.changes(), []);
    await growth.look();
  }
  const left = [...(await it.changes()), ...growth.grown()];
  t.log(growth.toString());
  noteCycles("pods", podCycles, left.length);
  t.deepEqual(left, []);
});

/** The host as a replug may leave traces in it. */
async function host(): Promise<string> {
  const rules = await run(["iptables-nft-save"]);
  const parts = [
    await ip("-o link show"),
    await ip("-o address show"),
    await ip("neighbour show"),
    rules.stdout.replaceAll(/^#.*\n|\[\d+:\d+\]/gm, ""),
  ];
  return parts.join("\n");
}

test.serial(`${replugs} replugs of NICs on one machine leave nothing`, async (t) => {
  await ownNetns();
  await using network = openHostNetwork({ iptables: "nft", chain: "HYPER" });
  await network.apply(networkFragment(), never);
  await using it = await rig(debianGuest);
  const { vm, events } = await it.start();
  while ((await events.next("channel")).port !== 0) events.seen.shift();
  const watched = [new Growth("podnet", process.pid, heldBytes), new Growth("QEMU", vm.record.pid)];

  const replug = async (slot: number): Promise<string> => {
    const port = podFragment(slot, {
      mac: nicPlan(slot).mac,
      address: `192.168.123.${slot + 1}/24`,
    });
    const [{ tap: name } = { tap: nicPlan(slot).tap }] = port.ports;
    const nic = { ...nicPlan(slot), tap: name };
    {
      await using tap = openTap(name);
      await network.apply(port, never);
      await vm.plug(nic, tap.fds, never);
    }
    const outcome = await vm.unplug(nic, never);
    await network.remove(port, never);
    return outcome;
  };

  t.is(await replug(1), "unplugged");
  const before = await host();
  for (let cycle = 1; cycle < replugs; cycle++) {
    // Slots in turn, and the same one over and over: both are ways to run out.
    t.is(await replug(cycle % 2 === 0 ? 1 : 1 + (cycle % 31)), "unplugged", `cycle ${cycle}`);
    for (const each of watched) await each.look();
  }
  const left = [
    ...difference(before, await host()),
    ...(await vm.nics(never)),
    ...events.seen.filter(({ kind }) => kind === "nic-removed").map(({ kind }) => kind),
    ...watched.flatMap((each) => each.grown()),
  ];
  for (const each of watched) t.log(each.toString());
  await vm.stop({ graceMs: 0 });
  await network.remove({ kind: "everything" }, never);
  noteCycles("replugs", replugs, left.length);
  t.deepEqual(left, []);
});
