import { execFile } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import type { Rig } from "./daemon-rig.ts";
import { create, joinStandInRig, whenReported } from "./standin-rig.ts";

// Guests that send small frames, each valid, as fast as they are read; and again after each time
// that they are cut off.

const full = process.env["PODNET_TEST_FULL"] === "1";
let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const reasonOf = async (idOrName: string): Promise<string> =>
  (await rig.client.pods.get({ idOrName })).pod?.reason ?? "";

async function counted(what: string): Promise<number> {
  const args = ["-sS", "--unix-socket", rig.daemon.socket, "http://podnet/metrics"];
  const { stdout } = await promisify(execFile)("curl", args);
  const found = new RegExp(`^podnet_guest_dropped_total\\{what="${what}"\\} (\\d+)`, "m");
  return Number(found.exec(stdout)?.[1] ?? 0);
}

test.serial("guests that flood are cut off: shown, counted, logged once in a while", async (t) => {
  const before = { cutOff: await counted("guest_cut_off"), log: rig.daemon.log().length };
  const floods = { next: "mean nothing", events: "not known", ends: "never were" };
  await Promise.all(
    Object.keys(floods).map((kind) => create(rig.client, kind, `standin.agent=flood-${kind}:1000`)),
  );
  for (const [kind, why] of Object.entries(floods)) {
    await whenReported(
      rig.client,
      kind,
      new RegExp(`the agent is lost: .*${why}.* AGENT_PROTOCOL`),
    );
  }
  // Each time the pause before it is reached again is longer, and all the while the pod says why.
  while (!/mean nothing/.test(await reasonOf("next"))) await delay(50);
  t.true((await counted("guest_cut_off")) - before.cutOff >= 3);
  const log = rig.daemon.log().slice(before.log);
  const lines = log.match(/Guest disconnected/g)?.length ?? 0;
  t.true(lines >= 3 && lines < 20, `${lines} lines`);
  const begun = performance.now();
  await create(rig.client, "bystander");
  t.true(performance.now() - begun < 15_000);
  for (const idOrName of ["bystander", ...Object.keys(floods)])
    await rig.client.pods.delete({ idOrName, force: true });
});

const at = (all: readonly number[], share: number): number =>
  all.toSorted((a, b) => a - b)[Math.floor((all.length - 1) * share)] ?? 0;

async function took(count: number, work: (index: number) => Promise<unknown>): Promise<number[]> {
  const all: number[] = [];
  for (let index = 0; index < count; index++) {
    const begun = performance.now();
    await work(index);
    all.push(performance.now() - begun);
  }
  return all;
}

// Times are no matter for a machine that does other things at once: complete runs alone measure.
const measure = full ? test.serial : undefined;
measure?.(
  "three guests that flood leave others' lists and creates near what they take without",
  async (t) => {
    t.timeout(240_000);
    const lists = (): Promise<number[]> => took(400, () => rig.client.pods.list({}));
    const creates = (): Promise<number[]> =>
      took(10, async (index) => {
        await create(rig.client, `other-${index}`);
        await rig.client.pods.delete({ idOrName: `other-${index}`, force: true });
      });
    await lists();
    await creates();
    const idle = { list: at(await lists(), 0.99), create: at(await creates(), 0.9) };
    for (const kind of ["next", "events", "ends", "ready"]) {
      const names = [0, 1, 2].map((index) => `${kind}-${index}`);
      for (const name of names) await create(rig.client, name, `standin.agent=flood-${kind}:1000`);
      await delay(2000);
      const busy = { list: at(await lists(), 0.99), create: at(await creates(), 0.9) };
      t.log(kind, JSON.stringify({ idle, busy }));
      // Three times what they take without, and 30 ms for what else the machine does.
      t.true(busy.list < 3 * idle.list + 30, `${kind}: a list takes ${busy.list} ms`);
      t.true(busy.create < 3 * idle.create + 100, `${kind}: a create takes ${busy.create} ms`);
      if (kind === "ends")
        await whenReported(rig.client, "ends-0", /the guest is slowed down: .*AGENT_PROTOCOL/);
      for (const idOrName of names) await rig.client.pods.delete({ idOrName, force: true });
    }
    t.true((await counted("guest_slowed")) >= 3);
  },
);
