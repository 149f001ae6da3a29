import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { attachmentPlanVersion } from "../../daemon/containers/attachment-plan.ts";
import type { Attachment } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import type { Machine } from "../lab/lab.ts";
import { type CniRig, openCniRig } from "./cni-rig.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await openCniRig('firewall = "nftables"\nquarantine_s = 0\ndrift_s = 1\n');
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

const gateway = "192.168.123.1";
const stateFile = (): string => join(cni.rig.directory, "state", "state.db");

/** Runs SQL on the state of a podnetd that is stopped. */
function inState<T>(body: (db: DatabaseSync) => T): T {
  const db = new DatabaseSync(stateFile());
  using _db = { [Symbol.dispose]: () => db.close() };
  return body(db);
}

/**
 * Damages a byte of a container's plan in the file: its row stays as SQLite wrote it, and the plan
 * is no JSON.
 */
function damageByte({ name }: Machine): void {
  const { id } = inState((db) =>
    db.prepare("SELECT id FROM attachments WHERE container_id = ?").get(name),
  ) as { id: string };
  const wanted = `{"version":${attachmentPlanVersion},"id":"${id}"`;
  const file = readFileSync(stateFile(), "latin1");
  if (!file.includes(wanted)) throw new Error(`The plan of ${name} is not in the file`);
  // Earlier versions of the row may be left in parts of pages that are not in use.
  writeFileSync(stateFile(), file.replaceAll(wanted, `[${wanted.slice(1)}`), "latin1");
}

const damageBySql =
  (set: string) =>
  ({ name }: Machine): void =>
    inState((db) =>
      db.prepare(`UPDATE attachments SET ${set} WHERE container_id = ?`).run(name),
    ) as unknown as void;

/** How a record is damaged, and what is said of it. */
const damages = [
  ["its plan is no JSON", damageByte, /plan is not JSON/],
  ["its plan is empty", damageBySql("plan = '{}'"), /plan has no version/],
  [
    "its address is undefined",
    damageBySql("plan = json_set(plan, '$.addresses[0]', 'undefined')"),
    /plan\.addresses\[0\] is no address with a length/,
  ],
  [
    "its plan is another container's",
    damageBySql("plan = replace(plan, id, 'aaaaaaaaaaaa')"),
    /plan has another id than its row/,
  ],
  [
    "its version is one that no podnetd writes",
    damageBySql("plan = json_set(plan, '$.version', 1.5)"),
    /plan's version is no number/,
  ],
] as const;

interface Added {
  readonly ips: readonly [{ readonly address: string }];
}
const bare = (address: string): string => address.replace(/\/.*/, "");

async function listed({ name }: Machine): Promise<Attachment | undefined> {
  const { attachments } = await cni.rig.client.cni.list({});
  return attachments.find(({ containerId }) => containerId === name);
}

/** Adds containers, stops podnetd, damages the record of each, and starts podnetd again. */
async function addDamaged(
  harms: readonly ((container: Machine) => void)[],
): Promise<readonly { readonly container: Machine; readonly address: string }[]> {
  const added: { container: Machine; address: string }[] = [];
  for (const _harm of harms) {
    const container = await cni.container();
    const { ips } = (await cni.done({ container })) as Added;
    added.push({ container, address: bare(ips[0].address) });
  }
  await cni.rig.daemon.stop();
  for (const [i, harm] of harms.entries()) harm(added[i]?.container as Machine);
  await cni.rig.restart("kill");
  return added;
}

test.serial(
  "containers whose records are damaged are refused alone: podnetd starts, all others work, and DEL removes them",
  async (t) => {
    const sound = await cni.container();
    const result = await cni.done({ container: sound });
    const added = await addDamaged(damages.map(([, harm]) => harm));
    const config = { prevResult: result };
    await cni.done({ command: "CHECK", container: sound, config });
    await sound.ping(gateway);
    for (const [i, { container, address }] of added.entries()) {
      const [what, , says] = damages[i] as (typeof damages)[number];
      const row = await listed(container);
      t.regex(row?.trouble ?? "", says, what);
      t.regex(row?.trouble ?? "", new RegExp(`container "${container.name}" \\(eth0\\)`));
      t.deepEqual(row?.addresses, [`${address}/32`], what);
      await container.ping(gateway);
      const checked = await cni.ask({ command: "CHECK", container, config });
      t.is(checked.json.code, 151, what);
      t.regex(checked.json.details, /STATE_CORRUPT/);
      const again = await cni.ask({ container });
      t.is(again.json.code, 105, "its name is taken");
      const other = await cni.container();
      const asked = await cni.ask({
        container: other,
        config: { runtimeConfig: { ips: [address] } },
      });
      t.is(asked.json.code, 102, `${what}: its address is taken`);
    }
    t.regex(await cni.rig.daemon.podnet("cni", "list"), /The record of container .* is damaged/);
    const health = await cni.rig.daemon.tryPodnet("info");
    t.regex(`${health.stdout}${health.stderr}`, /containers.*is damaged/s);

    const before = await cni.links();
    for (const [i, { container, address }] of added.entries()) {
      const what = damages[i]?.[0];
      const ended = await cni.ask({ command: "DEL", container });
      t.is(ended.exit, 0, `${what}: ${ended.stdout}`);
      const free = async (): Promise<boolean> => (await listed(container)) === undefined;
      while (!(await free()));
      const next = await cni.container();
      const { ips } = (await cni.done({
        container: next,
        config: { runtimeConfig: { ips: [address] } },
      })) as Added;
      t.is(bare(ips[0].address), address, `${what}: its address is given back`);
      await next.ping(gateway);
      await cni.done({ command: "DEL", container: next });
    }
    await sound.ping(gateway);
    t.is(before.length, added.length + 1);
    await cni.done({ command: "DEL", container: sound });
    await cni.converged();
    t.deepEqual(await cni.links(), []);
  },
);

test.serial(
  "GC removes a container whose record is damaged, and a restart completes a DEL of one",
  async (t) => {
    const [collected, left] = await addDamaged([
      damageByte,
      damageBySql("plan = '{}', state = 'deleting'"),
    ]);
    const sound = await cni.container();
    await cni.done({ container: sound });
    t.is(await listed(left?.container as Machine), undefined, "its DEL was begun before");
    t.truthy(await listed(collected?.container as Machine));
    const valid = [{ containerID: sound.name, ifname: "eth0" }];
    await cni.done({
      command: "GC",
      container: sound,
      config: { "cni.dev/valid-attachments": valid },
    });
    while ((await listed(collected?.container as Machine)) !== undefined);
    t.deepEqual((await cni.links()).length, 1);
    await sound.ping(gateway);
    await cni.done({ command: "DEL", container: sound });
    await cni.converged();
  },
);

test.serial("a container of a newer podnetd is no damage: podnetd refuses to start", async (t) => {
  const container = await cni.container();
  await cni.done({ container });
  await cni.rig.daemon.stop();
  damageBySql(`plan = json_set(plan, '$.version', ${attachmentPlanVersion + 1})`)(container);
  const error = await t.throwsAsync(cni.rig.restart("kill"));
  t.regex(error?.message ?? "", /STATE_NEWER/);
  damageBySql(`plan = json_set(plan, '$.version', ${attachmentPlanVersion})`)(container);
  await cni.rig.restart("kill");
  await container.ping(gateway);
  await cni.done({ command: "DEL", container });
  await cni.converged();
});
