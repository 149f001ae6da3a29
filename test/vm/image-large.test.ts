/** An image of two gigabytes, and fifty pods of one image. */
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { ownMib } from "../../scripts/bench.d/pod/own-memory.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { openRig, type Rig } from "./daemon-rig.ts";

const pods = 50;
const mebibyte = 1024 * 1024;
let rig: Rig;
let root: string;

// Not in the sandbox's /tmp: a file in memory counts as memory of the worker that writes it.
const onDisk = mkdtempSync(path.resolve(import.meta.dirname, "../../build/large-"));

test.serial.before(async () => {
  process.env["TMPDIR"] = onDisk;
  rig = await openRig('factory = "template"\nquarantine_s = 0\n');
  const directory = path.join(rig.directory, "images");
  mkdirSync(directory);
  busyboxImage(directory);
  root = path.join(directory, "busybox");
  await rig.daemon.podnet("image", "import", "--on-host", root, "small:1");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(onDisk, { recursive: true, force: true });
});

const usedKib = (directory: string): number =>
  Number(execFileSync("du", ["-sk", directory]).toString().split("\t")[0]);

/** The first line that a pod's main process writes. */
async function firstLine(idOrName: string): Promise<string> {
  let said = "";
  for await (const { output } of rig.client.pods.logs({ idOrName, follow: true })) {
    if (output.case !== undefined) said += Buffer.from(output.value).toString("latin1");
    if (said.includes("\n")) break;
  }
  return said.split("\n")[0] ?? "";
}

test.serial("fifty pods of one image share its file, and most of their memory", async (t) => {
  t.timeout(400_000);
  const process = { args: ["sh", "-c", "echo up; sleep 1000"] };
  const create = async (i: number): Promise<string> => {
    const spec = { name: `pod${i}`, boot: { image: "small:1" }, process };
    return (await rig.client.pods.create({ spec })).pod?.id ?? "";
  };
  const ids = [await create(1)];
  const begin = usedKib(rig.directory);
  for (let i = 2; i <= pods; i++) ids.push(await create(i));
  const lines = await Promise.all(ids.map((_, i) => firstLine(`pod${i + 1}`)));
  t.deepEqual(new Set(lines), new Set(["up"]));
  const eachKib = (usedKib(rig.directory) - begin) / (pods - 1);
  const mib = ids.map((id) => ownMib(id)).toSorted((a, b) => a - b);
  const median = mib[pods / 2] ?? Number.NaN;
  t.log(`${eachKib.toFixed(0)} KiB of disk and ${median.toFixed(1)} MiB of memory for each pod`);
  t.true(eachKib < 1024);
  t.true(median < 64, "half of what a machine of 128 MiB could take");
  await Promise.all(ids.map((idOrName) => rig.client.pods.delete({ idOrName, force: true })));
});

test.serial("an image of two gigabytes is imported, and a pod reads the end of it", async (t) => {
  t.timeout(400_000);
  mkdirSync(path.join(root, "data"));
  for (let i = 0; i < 4; i++)
    execFileSync("dd", [
      "if=/dev/urandom",
      `of=${path.join(root, "data", `${i}`)}`,
      "bs=1M",
      "count=512",
      "status=none",
    ]);
  await rig.daemon.podnet("image", "import", "--on-host", root, "large:1");
  const last = openSync(path.join(root, "data", "3"), "r");
  const wanted = Buffer.alloc(16);
  readSync(last, wanted, 0, wanted.length, 512 * mebibyte - wanted.length);
  closeSync(last);
  const { images } = await rig.client.images.list({});
  const bytes = Number(images.find(({ names }) => names.some((n) => n.includes("large")))?.bytes);
  t.true(bytes > 2 * 1024 * mebibyte, `${bytes} bytes`);
  const script = "/bin/busybox tail -c 16 /data/3 | /bin/busybox od -An -tx1; sleep 1000";
  const spec = {
    name: "large",
    boot: { image: "large:1" },
    process: { args: ["sh", "-c", script] },
  };
  await rig.client.pods.create({ spec });
  t.is((await firstLine("large")).replaceAll(" ", ""), wanted.toString("hex"));
});
