import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { bootDisk, qcow2Of } from "../fixtures/disk-image.ts";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { until } from "../lab/until.ts";
import { snippets } from "./snippets.ts";

const run = promisify(execFile);

test("images are kept by what docs/how-to/container-images.md says, and outlive podnetd", async (t) => {
  const directory = mkdtempSync("/tmp/podnet-container-images-");
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const root = path.join(directory, "root");
  mkdirSync(path.join(root, "etc"), { recursive: true });
  writeFileSync(path.join(root, "etc/text"), "text");
  const disk = path.join(directory, "disk.qcow2");
  writeFileSync(disk, qcow2Of(bootDisk("the image boots"), 1 << 26));
  await using lab = await openLab("images-");
  const podnetd = await startPodnetd({ machine: lab.host, directory });
  const commands = snippets()
    .filter(({ page }) => page === "docs/how-to/container-images.md")
    .flatMap((block) => block.commands);
  t.true(commands.length >= 9);
  const PATH = `${path.resolve(import.meta.dirname, "../../bin")}:${process.env["PATH"]}`;
  const env = { ...process.env, PATH, root, disk, PODNET_SOCKET: podnetd.socket };
  const { stdout } = await run("sh", ["-euc", commands.join("\n")], { env });
  t.regex(stdout, /^NAME +DIGEST +TYPE +SIZE +USED$/m);
  t.regex(stdout, /^app:1 +[0-9a-f]{12} +root /m);
  t.regex(stdout, /^Removed [0-9a-f]{12}$/m);
  t.regex(await podnetd.podnet("image", "list"), /^cloud:1 +[0-9a-f]{12} +disk /m);

  // A podnetd that is killed within an import: nothing of it is left after the next start.
  const jobs = path.join(podnetd.stateDir, "image-store/jobs");
  const podnet = path.resolve(import.meta.dirname, "../../bin/podnet");
  const upload = spawn(podnet, ["image", "import", "-", "late"], { env });
  upload.stdin.on("error", () => {});
  upload.stdin.write(Buffer.alloc(1_000_000));
  await until("the job", () => existsSync(jobs) && readdirSync(jobs).length === 1);
  await podnetd.kill();
  upload.kill();
  const again = await startPodnetd({ machine: lab.host, directory });
  t.deepEqual(readdirSync(jobs), []);
  t.regex(await again.podnet("image", "list"), /^app:1 /m);
  await again.stop();
});
