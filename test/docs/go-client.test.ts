/**
 * A client in Go, generated and built as docs/reference/api.md says, by Debian's protoc and Go, and
 * run against a played podnetd over gRPC.
 */
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { serve } from "../unit/api/fixtures/server.ts";
import { playDaemon } from "../unit/cli/fixtures/daemon.ts";

const exec = promisify(execFile);
const top = path.resolve(import.meta.dirname, "../..");
const examples = path.join(top, "docs/examples/go");
const unpacked = path.join(top, "build/go/usr");
const go = path.join(unpacked, "lib/go-1.19");

const directory = mkdtempSync(path.join(tmpdir(), "podnet-go-"));
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

/** Debian's programs where they are unpacked, and Go's packages next to those of this test. */
const env = {
  PATH: `${unpacked}/bin:${go}/bin:${process.env["PATH"] ?? ""}`,
  LD_LIBRARY_PATH: `${unpacked}/lib/x86_64-linux-gnu`,
  GOROOT: go,
  GOPATH: `${directory}:${unpacked}/share/gocode`,
  GO111MODULE: "off",
  GOCACHE: path.join(directory, "cache"),
  CGO_ENABLED: "0",
  HOME: directory,
};

test("a client in Go is generated, built and run as the page says", async (t) => {
  t.timeout(600_000);
  t.true(existsSync(path.join(go, "bin/go")), "Go is needed: scripts/setup --go");
  const page = readFileSync(path.join(top, "docs/reference/api.md"), "utf8");
  t.true(page.includes("docs/examples/go/generate api "), "the page has the command");
  const source = path.join(directory, "src");
  await exec(path.join(examples, "generate"), [path.join(top, "api"), source], { env });
  cpSync(path.join(examples, "hello"), path.join(source, "hello"), { recursive: true });
  const { stdout: unformatted } = await exec("gofmt", ["-l", path.join(source, "hello")], { env });
  t.is(unformatted, "", "gofmt would change it");
  await exec("go", ["vet", "hello"], { env });
  const program = path.join(directory, "hello");
  await exec("go", ["build", "-o", program, "hello"], { env });

  const { calls, routes } = playDaemon();
  await using server = await serve(routes);
  const { stdout } = await exec(program, [], { env: { PODNET_SOCKET: server.h2 } });
  t.is(stdout, "web [192.168.123.2/24]\n");
  t.is(calls.creates[0]?.spec?.labels["app"], "shop");
  t.deepEqual(calls.deletes, ["abcdefghijkl"]);
});
