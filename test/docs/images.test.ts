import { execFile } from "node:child_process";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { snippets } from "./snippets.ts";

const top = path.resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

test("a Debian becomes a pod by what docs/how-to/images.md says, word for word", async (t) => {
  t.timeout(300_000);
  const [archive] = globSync("build/cache/image-debian/tree-*.tar", { cwd: top });
  if (archive === undefined) throw new Error("No Debian: run scripts/build-image --debian");
  const directory = mkdtempSync("/tmp/podnet-images-");
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const root = path.join(directory, "debian");
  mkdirSync(root);
  await run("tar", ["--numeric-owner", "-C", root, "-xpf", path.join(top, archive)]);
  // As debootstrap leaves it; podnet's own image has a partition.
  writeFileSync(path.join(root, "etc/fstab"), "");
  t.false(existsSync(path.join(root, "usr/sbin/podnet-guest")), "it has no agent yet");

  // The container image of the page: a small layer above this Debian.
  const page = path.join(directory, "page");
  mkdirSync(path.join(page, "srv"), { recursive: true });
  writeFileSync(path.join(page, "srv/page"), "of the image\n");
  const layers = [readFileSync(path.join(top, archive)), tarOf(page)];
  writeDockerArchive(path.join(directory, "app.tar"), { layers });

  const timeouts = "[timeouts]\ncreate_s = 280\nready_s = 240\nstop_s = 60\n";
  await using lab = await openLab("images-");
  await using podnetd = await startPodnetd({ machine: lab.host, directory, config: timeouts });
  const blocks = snippets().filter(({ page }) => page === "docs/how-to/images.md");
  const commands = blocks.flatMap((block) => block.commands);
  t.true(commands.length >= 7, "the page has its Debian block");
  const { stdout } = await run(
    "ip",
    ["netns", "exec", lab.host.name, "sh", "-euxc", commands.join("\n")],
    {
      cwd: top,
      env: {
        ...process.env,
        PATH: `${top}/bin:${process.env["PATH"]}`,
        PODNET_SOCKET: podnetd.socket,
        root,
        archive: path.join(directory, "app.tar"),
      },
    },
  );
  t.regex(stdout, /^enabled$/m);
  t.regex(stdout, /^own .* running /m);
  t.regex(stdout, /^active$/m);
  t.regex(stdout, /^Deleted own$/m);
  t.regex(stdout, /^12\.[0-9]+$/m);
  t.regex(stdout, /^Deleted app$/m);
  t.regex(stdout, /^Layers: +2$/m);
  t.regex(stdout, /^of the image$/m);
  t.regex(stdout, /^Deleted web$/m);
});
