/**
 * A client in Python, generated as docs/reference/api.md says, by Debian's protoc and generator of
 * gRPC, and run by Debian's python3-grpcio against a played podnetd over gRPC.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { serve } from "../unit/api/fixtures/server.ts";
import { playDaemon } from "../unit/cli/fixtures/daemon.ts";

const exec = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../..");
const examples = path.join(top, "docs/examples/python");
const unpacked = path.join(top, "build/python/usr");

const directory = mkdtempSync(path.join(tmpdir(), "podnet-python-"));
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

/** Debian's own Python has python3-grpcio; another that comes first on the PATH has not. */
const python = "/usr/bin/python3";

function generate(env: NodeJS.ProcessEnv) {
  return exec(path.join(examples, "generate"), [path.join(top, "api"), directory], { env });
}

test("a client in Python is generated and run as the page says", async (t) => {
  t.timeout(120_000);
  t.true(existsSync(path.join(unpacked, "bin/protoc")), "scripts/setup --python is needed");
  const page = readFileSync(path.join(top, "docs/reference/api.md"), "utf8");
  t.true(page.includes("docs/examples/python/generate api "), "the page has the command");
  await generate({
    PATH: `${unpacked}/bin:${process.env["PATH"] ?? ""}`,
    LD_LIBRARY_PATH: `${unpacked}/lib/x86_64-linux-gnu`,
  });

  const { calls, routes } = playDaemon();
  await using server = await serve(routes);
  const { stdout } = await exec(python, [path.join(examples, "hello.py")], {
    env: { PODNET_SOCKET: server.h2, PYTHONPATH: directory, PYTHONDONTWRITEBYTECODE: "1" },
  });
  t.is(stdout, "web ['192.168.123.2/24']\n");
  t.is(calls.creates[0]?.spec?.labels["app"], "shop");
  t.deepEqual(calls.deletes, ["abcdefghijkl"]);
});

test("without the generator it says which package has it", async (t) => {
  const empty = path.join(directory, "nothing");
  const failed = await t.throwsAsync<Error & { stderr: string }>(generate({ PATH: empty }));
  t.regex(failed.stderr, /Debian's package protobuf-compiler-grpc/);
});
