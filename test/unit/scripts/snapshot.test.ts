import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { version } from "../../../api/version.ts";
import { bundleSnapshot } from "../../../scripts/bundle.ts";

const directory = mkdtempSync(path.join(tmpdir(), "podnet-snapshot-"));
test.before(() => bundleSnapshot(directory, process.execPath));
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

const start = (args: readonly string[], env: NodeJS.ProcessEnv = {}) => {
  const blob = path.join(directory, "podnet.blob");
  const words = ["--single-threaded", "--snapshot-blob", blob, "--", ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, {
    env: { PATH: process.env["PATH"], ...env },
    cwd: directory,
    encoding: "utf8",
  });
  return { status, stdout, stderr };
};

test("the snapshot alone is left of its making", (t) => {
  t.deepEqual(readdirSync(directory), ["podnet.blob"]);
});

test("it runs what its words say, and ends with the code of that", (t) => {
  t.deepEqual(start(["--version"]), { status: 0, stdout: `${version}\n`, stderr: "" });
  const wrong = start(["lst"]);
  t.is(wrong.status, 2);
  t.regex(wrong.stderr, /Did you mean one of list, ls\?/);
  t.regex(start(["create", "--help"]).stdout, /^Usage: podnet create/);
});

test("the environment and the socket are those of the moment", (t) => {
  const { status, stderr } = start(["list"], { PODNET_SOCKET: "/nowhere/of.sock" });
  t.is(status, 3);
  t.regex(stderr, /podnetd does not answer at \/nowhere\/of\.sock/);
});

test("words behind -- are the program's, and are not taken for Node's or podnet's", (t) => {
  const { status, stderr } = start(["exec", "web", "--", "ls", "--version"], {
    PODNET_SOCKET: "/nowhere/of.sock",
  });
  t.is(status, 125, stderr);
});
