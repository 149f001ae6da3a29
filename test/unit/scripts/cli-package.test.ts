import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { buildCli } from "../../../scripts/packaging/cli.ts";

const exec = promisify(execFile);

test("npm's package of the command runs by itself, and says what it cannot reach", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-cli-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const archive = await buildCli({ version: "1.2.3", into: directory });
  const installed = path.join(directory, "installed");
  mkdirSync(installed);
  await exec("tar", ["-xzf", archive, "--strip-components=1", "-C", installed]);
  // As npm does: a link to the file that `bin` names, run by the Node of PATH.
  const env = { PATH: `${path.dirname(process.execPath)}:${process.env["PATH"]}` };
  const podnet = (...args: string[]) =>
    exec(path.join(installed, "build/programs/podnet.mjs"), args, { cwd: "/", env });
  t.is((await podnet("--version")).stdout.trim(), "1.2.3");
  t.regex((await podnet("--help")).stdout, /podnet create web/);
  const error = await t.throwsAsync(podnet("list", "--socket", "/nowhere"));
  t.regex((error as unknown as { stderr: string }).stderr, /DAEMON_UNREACHABLE/);
});
