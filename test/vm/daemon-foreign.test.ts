import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { Random, runSeed } from "../fuzz/engine/random.ts";
import { foreignText, makeForeign, ownRules, type Run } from "../lab/foreign.ts";
import { openLab } from "../lab/lab.ts";
import { difference } from "../lab/network.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const operations = full ? 1000 : 24;

test("through a daemon that is killed and harmed nothing of others is changed, and its rules are there once", async (t) => {
  t.timeout(full ? 4 * 3_600_000 : 280_000);
  const seed = runSeed();
  t.log(`PODNET_SEED=${seed}`);
  const dice = new Random(seed);
  const random = (below: number): number => dice.below(below);
  await using lab = await openLab(`f${process.pid}-`);
  const { host } = lab;
  const run: Run = (...argv) => host.run(...argv);
  await makeForeign(run, random);
  for (let calm = 0, last = ""; calm < 4; ) {
    const now = await foreignText(run, true);
    calm = now === last ? calm + 1 : 0;
    last = now;
    await delay(250);
  }
  const atFirst = await foreignText(run, true);
  const foreign = await foreignText(run, false);
  const directory = mkdtempSync(join(tmpdir(), "podnet-foreign-"));
  const variant = random(2) === 0 ? "nft" : "legacy";
  const config = `iptables_variant = "${variant}"\ndrift_s = 1\nquarantine_s = 0\n${await standInConfig(directory)}`;
  const start = (): Promise<Podnetd> => startPodnetd({ machine: host, directory, config });
  let daemon = await start();
  let client: Podnet = connectPodnet({ socket: daemon.socket });
  // Before the lab: a podnetd that a failure leaves would keep this process alive.
  await using ending = new AsyncDisposableStack();
  ending.defer(async () => {
    client.close();
    await daemon.tryPodnet("down", "--yes");
    await daemon.kill();
    rmSync(directory, { recursive: true, force: true });
  });
  const planned = await ownRules(run);
  t.is(planned.filter((line) => line.endsWith("-j HYPER")).length, 3, planned.join("\n"));
  const pods: string[] = [];
  const harms = [
    "ip link del hyper0",
    "ip link set hyper0 mtu 1400",
    `iptables-${variant} -D FORWARD -o hyper0 -m comment --comment podnet:network:default -j HYPER`,
    `iptables-${variant} -t nat -F HYPER`,
  ];
  const wholeAgain = async (): Promise<void> => {
    for (let i = 0; i < 150 && (await client.node.diff({})).drift; i++) await delay(100);
    t.deepEqual(await ownRules(run), planned);
  };
  const operation = {
    async create() {
      const name = `p${pods.length}-${random(1e6)}`;
      await client.pods.create({ spec: { name } });
      pods.push(name);
    },
    async delete() {
      const name = pods.splice(random(Math.max(1, pods.length)), 1)[0];
      if (name !== undefined) await client.pods.delete({ idOrName: name, force: random(2) === 0 });
    },
    async harm() {
      await run(...((harms[random(harms.length)] ?? "").split(" ") as [string, ...string[]]));
      await wholeAgain();
    },
    async restart() {
      client.close();
      await daemon[random(2) === 0 ? "stop" : "kill"]();
      daemon = await start();
      client = connectPodnet({ socket: daemon.socket });
      await wholeAgain();
    },
  };
  const kinds = ["create", "create", "delete", "delete", "harm", "restart"] as const;
  const trail: string[] = [];
  for (let i = 1; i <= operations; i++) {
    const kind = kinds[random(kinds.length)] ?? "create";
    trail.push(kind);
    await operation[kind]();
    if (i % 10 === 0) {
      const now = await foreignText(run, false);
      t.deepEqual(difference(foreign, now), [], `seed ${seed}, ${trail.slice(-10).join()}`);
    }
  }
  const down = await daemon.tryPodnet("down", "--yes");
  t.is(down.exitCode, 0, down.stderr);
  t.deepEqual(difference(atFirst, await foreignText(run, true)), [], `seed ${seed}`);
  t.deepEqual(await ownRules(run), []);
});
