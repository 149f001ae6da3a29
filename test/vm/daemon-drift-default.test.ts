import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { ownRules } from "../lab/foreign.ts";
import { standInConfig } from "../lab/standin.ts";
import { addressOf, openRig } from "./daemon-rig.ts";

/** Drift has to be healed within so long, milliseconds: promise 20. */
const healedWithinMs = 10_000;

for (const variant of ["nft", "legacy"])
  test.serial(
    `looking as seldom as it does unasked, podnetd heals rules of ${variant} and forwarding`,
    async (t) => {
      t.timeout(120_000);
      const images = mkdtempSync(join(tmpdir(), "podnet-drift-"));
      await using rig = await openRig(
        `iptables_variant = "${variant}"\n${await standInConfig(images)}`,
      );
      const { client, lab } = rig;
      const { pod } = await client.pods.create({ spec: { name: "web" } });
      const own = await ownRules(lab.host.run);
      t.true(own.length > 5 && own.every((line) => line.startsWith(variant)), own.join("\n"));
      const harms = [
        `iptables-${variant} -F`,
        `iptables-${variant} -t nat -F`,
        "sysctl -q -w net.ipv4.ip_forward=0",
      ];
      for (const harm of harms) await lab.host.run(...(harm.split(" ") as [string, ...string[]]));
      const over = performance.now() + healedWithinMs;
      while ((await client.node.diff({})).drift && performance.now() < over) await delay(100);
      const { drift, parts } = await client.node.diff({});
      t.false(drift, JSON.stringify(parts));
      t.deepEqual(await ownRules(lab.host.run), own);
      t.is((await lab.host.run("sysctl", "-n", "net.ipv4.ip_forward")).trim(), "1");
      await lab.host.ping(addressOf(pod), 1);
    },
  );
