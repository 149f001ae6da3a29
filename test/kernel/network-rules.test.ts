import test from "ava";
import { PodnetError } from "../../core/errors.ts";
import { run } from "../../linux/processes/command.ts";
import { openHostKernel } from "../../network/kernel/kernel.ts";
import type { Remembered } from "../../network/kernel/memory.ts";
import { ownNetns } from "../lab/netns.ts";
import { networkFragment } from "../lab/network.ts";
import { open, reopen, seedForeign, signal } from "./network-host-rig.ts";

test.serial("With iptables off no firewall command is run", async (t) => {
  await using host = await open({ iptables: "off" });
  t.true(host.describe(networkFragment()).every((line) => !line.startsWith("iptables")));
  await host.apply(networkFragment(), signal);
  await host.remove({ kind: "orphans", known: { pods: new Set(), networks: new Set() } }, signal);
  await host.remove({ kind: "everything" }, signal);
  t.is((await run(["iptables-nft-save"])).stdout, "");
  t.is((await run(["cat", "/proc/net/ip_tables_names"])).stdout, "");
});

test.serial(
  "Switched off, iptables is rid of the rules made before, and left alone then",
  async (t) => {
    const rules = async (): Promise<string> =>
      (await run(["iptables-nft-save"])).stdout.replaceAll(/^#.*\n|\[\d+:\d+\]/gm, "");
    let remembered: Remembered | undefined;
    let before = "";
    {
      await using on = await open();
      await seedForeign();
      before = await rules();
      await on.apply(networkFragment(), signal);
      ({ remembered } = on);
    }
    await using off = reopen({ iptables: "off", remembered });
    const changes = await off.apply(networkFragment(), signal);
    t.deepEqual(
      changes.map(({ kind }) => kind),
      ["iptables", "iptables"],
    );
    t.is(await rules(), before);
    t.deepEqual(off.remembered.chains, []);
    t.deepEqual(await off.apply(networkFragment(), signal), []);
  },
);

test.serial("A commit that another program overtook is made once more", async (t) => {
  await ownNetns();
  const kernel = openHostKernel();
  let refusals = 1;
  const restore: typeof kernel.iptables.restore = (...args) => {
    if (refusals-- > 0) throw new PodnetError("COMMAND_FAILED", "iptables-restore: line 2 failed");
    return kernel.iptables.restore(...args);
  };
  const reported: string[] = [];
  await using host = reopen({
    kernel: { ...kernel, iptables: { ...kernel.iptables, restore } },
    repeated: ({ message }) => reported.push(message),
  });
  await host.apply(networkFragment(), signal);
  t.deepEqual(await host.diff(networkFragment(), signal), []);
  t.is(reported.length, 1);
  t.regex(reported[0] ?? "", /^Cannot change table/);
  // Once: what is refused again is an error.
  refusals = 2;
  await run(["iptables-nft", "-F"]);
  await t.throwsAsync(host.apply(networkFragment(), signal), { code: "FIREWALL_FAILED" });
});

test.serial(
  "Another program writing rules at the same time neither fails nor is failed",
  async (t) => {
    await using host = await open();
    const busy = (async () => {
      for (let i = 0; i < 60; i++) {
        const rule = ["FORWARD", "-s", `10.1.1.${i + 1}`, "-j", "DROP"] as const;
        await run(["iptables-nft", "-I", ...rule]);
        if (i % 2 === 0) await run(["iptables-nft", "-D", ...rule]);
      }
    })();
    for (let i = 0; i < 10; i++) {
      await host.apply(networkFragment(), signal);
      await host.remove(networkFragment(), signal);
    }
    await busy;
    await host.apply(networkFragment(), signal);
    t.deepEqual(await host.diff(networkFragment(), signal), []);
    await host.remove({ kind: "everything" }, signal);
    const rules = (await run(["iptables-nft-save"])).stdout;
    t.is([...rules.matchAll(/^-A/gm)].length, 30);
    t.false(/podnet|HYPER/.test(rules));
  },
);
