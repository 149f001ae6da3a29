import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { busyboxImage } from "../lab/busybox-root.ts";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { snippets } from "./snippets.ts";

const top = path.resolve(import.meta.dirname, "../..");

test("programs of an image run by what docs/how-to/run.md says, and exit as they end", async (t) => {
  t.timeout(300_000);
  const directory = mkdtempSync("/tmp/podnet-run-");
  t.teardown(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const image = busyboxImage(directory);
  await using lab = await openLab("run-");
  // Pods are clones: the boot of each would take most of the time.
  const config = `factory = "template"\n`;
  await using podnetd = await startPodnetd({ machine: lab.host, directory, config });
  const env = {
    ...process.env,
    PATH: `${top}/bin:${process.env["PATH"]}`,
    PODNET_SOCKET: podnetd.socket,
    image,
  };
  const shell = (
    script: string,
    input = "",
  ): { status: number | null; out: string; err: string } => {
    const { status, stdout, stderr } = spawnSync(
      "ip",
      ["netns", "exec", lab.host.name, "sh", "-euc", script],
      { cwd: top, env, input, encoding: "utf8" },
    );
    return { status, out: stdout, err: stderr };
  };
  const [first, second] = snippets().filter(({ page }) => page === "docs/how-to/run.md");
  const shown = shell((first?.commands ?? []).join("\n"));
  t.is(shown.status, 0, shown.err);
  t.is(shown.out, "hello\nblue\nuid=1000(web) gid=100(users) groups=100(users)\n/srv\ninput\n");

  const later = shell((second?.commands ?? []).join("\n"));
  t.is(later.status, 0, later.err);
  t.regex(later.out, /^\d{4}-\d\d-\d\dT[\d:.]+Z up$/m);
  t.regex(later.out, /sleep 1$/m);
  t.regex(later.out, /^143$/m);
  t.regex(later.out, /^Deleted web$/m);

  // An image in the store says what to run; a pod has it until it is deleted.
  const archive = path.join(directory, "app.tar");
  writeDockerArchive(archive, {
    layers: [tarOf(path.join(directory, "busybox"))],
    config: {
      Entrypoint: ["sh", "-c"],
      Cmd: ["echo $COLOR; id -un; pwd"],
      Env: ["COLOR=green", "PATH=/bin"],
      User: "web:logs",
      WorkingDir: "/srv",
    },
  });
  t.is(shell(`podnet image import ${archive} app:1`).status, 0);
  const asImage = shell("podnet run --name app app:1");
  t.deepEqual([asImage.status, asImage.out], [0, "green\nweb\n/srv\n"], asImage.err);
  t.is(shell("podnet image rm app:1").status, 5);
  t.is(shell("podnet run --rm --entrypoint echo app:1 other").out, "other\n");
  t.is(shell("podnet delete app && podnet image rm app:1").status, 0);

  // An archive is sent to the store, once; a name that is nowhere is asked of its registry.
  const sent = shell(`cd ${directory} && podnet run --rm app.tar && podnet run --rm ./app.tar`);
  t.deepEqual([sent.status, sent.out], [0, "green\nweb\n/srv\n".repeat(2)], sent.err);
  t.is(shell("podnet image list -o json | grep -c '\"digest\"'").out.trim(), "1");
  const nowhere = shell("podnet run --rm 127.0.0.1:9/app:1");
  t.is(nowhere.status, 125);
  t.regex(nowhere.err, /REGISTRY_UNREACHABLE/);
  t.regex(shell("podnet run --rm --pull never 127.0.0.1:9/app:1").err, /IMAGE_NOT_FOUND/);

  // Exit codes, standard error, and what goes with --rm.
  const failed = shell('podnet run --rm --name gone "$image" sh -c "echo bad >&2; exit 42"');
  t.deepEqual([failed.status, failed.out, failed.err], [42, "", "bad\n"]);
  t.is(shell("podnet get gone").status, 4);
  t.is(shell('podnet run --rm "$image" missing').status, 127);
  t.is(shell('podnet run --rm "$image" plain').status, 126);
  t.is(shell("podnet run --rm absent:1 sh").status, 125);
  // A signal to the client is the program's.
  const signalled = shell(
    `podnet run --rm "$image" sh -c 'trap "exit 9" TERM; echo up; while :; do sleep 0.1; done' > ${directory}/out & ` +
      `while ! grep -q up ${directory}/out; do sleep 0.2; done; kill -TERM $!; wait $!`,
  );
  t.is(signalled.status, 9, signalled.err);
});
