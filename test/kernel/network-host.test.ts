import test from "ava";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import { openTap } from "../../linux/tun.ts";
import type { Remembered } from "../../network/kernel/memory.ts";
import { difference, foreignState, ip, networkFragment, podFragment } from "../lab/network.ts";
import { linkOf, open, reopen, seedForeign, signal } from "./network-host-rig.ts";

test.serial(
  "Down takes away all that is ours and nothing else, after a daemon's restart too",
  async (t) => {
    let stored: Remembered | undefined;
    const remember = (value: Remembered): void => {
      // As the daemon's store does it.
      stored = JSON.parse(JSON.stringify(value)) as Remembered;
    };
    const first = await open({ remember });
    await seedForeign();
    const before = await foreignState();
    await using _tap2 = openTap("tap2" as IfName);
    await using _tap3 = openTap("tap3" as IfName);
    await first.apply(networkFragment(), signal);
    await first.apply(podFragment(2), signal);
    await first.apply(podFragment(3), signal);
    await first[Symbol.asyncDispose]();
    await using second = reopen({ remember, remembered: stored });
    t.deepEqual(await second.apply(networkFragment(), signal), []);
    t.is(second.remembered.ipForward, "0");
    await second.remove({ kind: "everything" }, signal);
    t.deepEqual(difference(before, await foreignState()), []);
    t.false((await ip("-d link show")).includes("podnet:"));
    t.false((await run(["iptables-nft-save"])).stdout.includes("HYPER"));
    const nothing = { host: "", chains: [], raised: [], rules6: "known" };
    t.deepEqual<unknown, unknown>({ ...stored, host: "" }, nothing);
    t.deepEqual(await second.remove({ kind: "everything" }, signal), []);
  },
);

test.serial(
  "What an earlier boot remembered is void; forwarding that was on stays on",
  async (t) => {
    await using host = await open({
      remembered: {
        host: "an earlier boot",
        ipForward: "0",
        chains: ["nft filter HYPER"],
        raised: [],
      },
    });
    t.is(host.remembered.ipForward, undefined);
    writeSysctl("net.ipv4.ip_forward", "1");
    await host.apply(networkFragment(), signal);
    await host.remove({ kind: "everything" }, signal);
    t.is(readSysctl("net.ipv4.ip_forward"), "1");
  },
);

test.serial("The state of the host is reported, and looking at it changes nothing", async (t) => {
  await using host = await open({ iptables: "auto" });
  const facts = { firewall: "nft", ipForward: false, bridgeNfCallIptables: true };
  t.deepEqual<unknown, unknown>(await host.observe.facts(signal), facts);
  writeSysctl("net.bridge.bridge-nf-call-iptables", "0");
  await host.apply(networkFragment(), signal);
  t.is(readSysctl("net.bridge.bridge-nf-call-iptables"), "0", "read, never written");
  const after = { firewall: "nft", ipForward: true, bridgeNfCallIptables: false };
  t.deepEqual<unknown, unknown>(await host.observe.facts(signal), after);
  await using off = reopen({ iptables: "off" });
  t.is((await off.observe.facts(signal)).firewall, "off");
});

test.serial("A store that cannot remember prevents the change", async (t) => {
  const remember = (): void => {
    throw new Error("disk full");
  };
  // The firewall's chain is to be remembered first; without one it is forwarding.
  for (const iptables of ["nft", "off"] as const) {
    await using host = await open({ remember, iptables });
    await t.throwsAsync(host.apply(networkFragment(), signal), { message: /disk full/ });
    t.is(readSysctl("net.ipv4.ip_forward"), "0");
    t.is((await run(["iptables-nft-save"])).stdout, "");
  }
});

test.serial("Foreign state is byte for byte the same after a thousand operations", async (t) => {
  await using host = await open();
  await seedForeign();
  const before = await foreignState();
  await host.apply(networkFragment(), signal);
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 48271) % 2147483647;
    return seed % below;
  };
  const taps = new Map<number, ReturnType<typeof openTap>>();
  for (let i = 0; i < 1000; i++) {
    const n = 2 + random(12);
    if (i % 100 === 99) await host.apply(networkFragment(), signal);
    if (i % 250 === 249)
      await host
        .remove(networkFragment(), signal)
        .then(() => host.apply(networkFragment(), signal));
    const tap = taps.get(n);
    if (tap === undefined) {
      taps.set(n, openTap(`tap${n}` as IfName));
      await host.apply(podFragment(n, { isolated: random(2) === 0 }), signal);
    } else if (random(8) === 0) {
      await host.remove(
        { kind: "ports", pod: podFragment(n).key, tap: `tap${n}` as IfName },
        signal,
      );
      await tap.close();
      await host.remove(podFragment(n), signal);
      taps.delete(n);
    } else {
      await host.apply(podFragment(n), signal);
    }
  }
  await Promise.all([...taps.values()].map((tap) => tap.close()));
  await host.remove({ kind: "everything" }, signal);
  t.deepEqual(difference(before, await foreignState()), []);
});

test.serial(
  "Calls made at once are done one after the other; an aborted one is not started",
  async (t) => {
    await using host = await open();
    const results = await Promise.all([1, 2, 3].map(() => host.apply(networkFragment(), signal)));
    t.deepEqual(
      results.map((changes) => changes.length),
      [10, 0, 0],
    );
    const gone = new AbortController();
    gone.abort();
    const error = await t.throwsAsync(host.remove(networkFragment(), gone.signal));
    t.true(isPodnetError(error, "CANCELLED"));
    t.truthy(await linkOf("hyper0"));
  },
);
