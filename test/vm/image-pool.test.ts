/** Clones of a container image that wait for a pod. */
import { existsSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { busyboxImage } from "../lab/busybox-root.ts";
import { until } from "../lab/until.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  const pool = `[pool]\nsize = 0\nclasses = ["app:1 1x128=1"]\n`;
  rig = await openRig(`factory = "pool"\nquarantine_s = 0\n${pool}`);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/**
 * Imports an image of busybox under the name `app:1`, which greets with a word, unless that was
 * done before.
 */
async function importApp(word: string): Promise<void> {
  const directory = path.join(rig.directory, word);
  if (existsSync(directory)) return;
  busyboxImage(directory);
  const archive = path.join(directory, "app.tar");
  const config = { Cmd: ["sh", "-c", `echo ${word}; cat /proc/uptime; sleep 1000`] };
  writeDockerArchive(archive, { layers: [tarOf(path.join(directory, "busybox"))], config });
  await rig.daemon.podnet("image", "import", archive, "app:1");
}

const poolNow = async () =>
  (await rig.client.node.listPools({})).pools.find(({ image }) => image !== "");

const waiting = () => until("a machine to wait", async () => (await poolNow())?.ready === 1);

async function create(name: string, image = "app:1"): Promise<{ origin: string; said: string }> {
  const { pod } = await rig.client.pods.create({ spec: { name, boot: { image } } });
  let said = "";
  for await (const { output } of rig.client.pods.logs({ idOrName: name, follow: true })) {
    if (output.case !== undefined) said += Buffer.from(output.value).toString();
    if (said.split("\n").length > 2) break;
  }
  return { origin: pod?.spans.find(({ step }) => step === "vm.start")?.detail ?? "", said };
}

/** Bytes that a pod's machine has read of its image since it was cloned. */
async function readOfImage(idOrName: string): Promise<number> {
  for await (const { pods } of rig.client.pods.stats({ idOrName, everyMs: 1000 }))
    return Number(pods[0]?.machine?.disks[0]?.readBytes);
  return Number.NaN;
}

test.serial("a pool of an image that is not there says so, and fills once it is", async (t) => {
  const { error, image } = await until("the reason", async () => {
    const pool = await poolNow();
    return pool?.error !== undefined && pool;
  });
  t.is(image, "app:1");
  t.is(error?.code, "IMAGE_NOT_FOUND");
  await importApp("hello");
  await rig.daemon.podnet("pool", "fill");
  t.like(await poolNow(), { ready: 1, error: undefined });
});

test.serial("a pod of the image takes the machine, and its main process begins then", async (t) => {
  await importApp("hello");
  await rig.daemon.podnet("pool", "fill");
  const { origin, said } = await create("one");
  t.regex(origin, /from the pool$/);
  t.regex(said, /^hello\n/);
  const read = await readOfImage("one");
  t.true(read < 200_000, `its template had read busybox, of 1 MB: it read ${read} bytes`);
  await waiting();
  // The name is written otherwise, and means the same image.
  await rig.daemon.podnet("image", "tag", "app:1", "other");
  const { origin: ofOther } = await create("two", "other");
  t.regex(ofOther, /a clone with its NIC; the pool had none like it$/);
  t.like(await poolNow(), { claimed: 1n });
});

test.serial(
  "when the name means another image, pods are of that one, and so is the pool",
  async (t) => {
    await importApp("again");
    const { origin, said } = await create("three");
    t.regex(origin, /the pool had none like it$/);
    t.regex(said, /^again\n/);
    await until("a machine of the new image", async () => {
      const { pools } = await rig.client.node.listPools({});
      return pools.some(({ ready }) => ready === 1) && rig.daemon.log().includes("was replaced");
    });
    await waiting();
    const { origin: next, said: nextSaid } = await create("four");
    t.regex(next, /from the pool$/);
    t.regex(nextSaid, /^again\n/);
    t.true((await rig.client.pods.verify({ idOrName: "four" })).ok);
  },
);
