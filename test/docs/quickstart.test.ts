import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { runPodnet } from "../lab/podnetd.ts";

const top = path.resolve(import.meta.dirname, "../..");
const quickstart = (...args: string[]): Promise<{ stdout: string; stderr: string }> => {
  // A sandbox of its own inside this one, as a user's shell would start it.
  const { PODNET_SANDBOX: _inside, ...env } = process.env;
  return promisify(execFile)(path.join(top, "scripts/quickstart"), args, {
    env,
    maxBuffer: 1 << 24,
  });
};

test.serial("quickstart shows ping both ways, refuses bad input and cleans up", async (t) => {
  const { stdout } = await quickstart();
  t.regex(stdout, /✔ host → web \(192\.168\.123\.2\) .* ms round trip/);
  t.regex(stdout, /✔ web → its gateway .* ms round trip/);
  t.regex(stdout, /✔ web → the internet .* ms round trip/);
  t.regex(stdout, /✔ web → db .* ms round trip/);
  t.regex(stdout, /NAME_IN_USE[\s\S]*ADDRESS_OUT_OF_RANGE[\s\S]*ADDRESS_IN_USE/);
  t.false(existsSync(path.join(top, "build/lab")));
});

test.serial(
  "quickstart --keep leaves a lab that an ordinary shell can use, --down ends it",
  async (t) => {
    t.teardown(() => quickstart("--down"));
    const { stdout } = await quickstart("--keep");
    const socket = path.join(top, /PODNET_SOCKET=\$PWD\/(\S+)/.exec(stdout)?.[1] ?? "");
    const list = await runPodnet(socket, ["list", "-o", "json"]);
    t.is(list.exitCode, 0, list.stderr);
    t.regex(list.stdout, /"web"/);
    const exec = await runPodnet(socket, ["exec", "web", "--", "hostname"]);
    t.is(exec.stdout.trim(), "web", exec.stderr);
    // A second one would fight over the place: it says so and does nothing.
    await t.throwsAsync(quickstart("--keep"), { message: /running already/ });
    t.regex((await quickstart("--down")).stdout, /The lab is gone/);
    t.false(existsSync(path.join(top, "build/lab")));
    t.regex((await quickstart("--down")).stdout, /No lab was running/);
  },
);
