import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
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

/**
 * Types the session that the README shows on the host of the kept lab, and compares the addresses
 * in its output. Returns the name of the pod that the session deletes.
 */
async function readmeSession(): Promise<string | undefined> {
  const readme = readFileSync(path.join(top, "README.md"), "utf8");
  const session = /^```\n(\$ podnet create[^`]*)```$/m.exec(readme)?.[1] ?? "";
  const commands = session.split("\n").flatMap((line) => /^\$ (.*)$/.exec(line)?.[1] ?? []);
  const { stdout } = await quickstart("--enter", "host", "sh", "-ec", commands.join("\n"));
  const addresses = (text: string): string[] => [...new Set(text.match(/192\.168\.123\.\d+/g))];
  if (addresses(stdout).toSorted().join() !== addresses(session).toSorted().join())
    throw new Error(`The README shows\n${session}\nand the lab answers\n${stdout}`);
  return /^Deleted (\S+)$/m.exec(stdout)?.[1];
}

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
    t.is(await readmeSession(), "shop");
    await t.throwsAsync(quickstart("--enter", "elsewhere"), { message: /host, lan or internet/ });
    // A second one would fight over the place: it says so and does nothing.
    await t.throwsAsync(quickstart("--keep"), { message: /running already/ });
    t.regex((await quickstart("--down")).stdout, /The lab is gone/);
    await t.throwsAsync(quickstart("--enter", "host"), { message: /No lab is running/ });
    t.false(existsSync(path.join(top, "build/lab")));
    t.regex((await quickstart("--down")).stdout, /No lab was running/);
  },
);
