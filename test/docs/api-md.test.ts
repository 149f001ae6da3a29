import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { errorCodes } from "../../core/errors.ts";
import { serve } from "../unit/api/fixtures/server.ts";
import { playDaemon } from "../unit/cli/fixtures/daemon.ts";
import { podnet } from "../unit/cli/fixtures/io.ts";

const execute = promisify(execFile);
const read = (page: string): string =>
  readFileSync(new URL(`../../docs/reference/${page}`, import.meta.url), "utf8");

const snippets = (page: string, language: string): string[] =>
  [...read(page).matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, "gm"))].map(
    (match) => match[1] as string,
  );

test("the curl commands of docs/reference/api.md work as they stand", async (t) => {
  // The answers are played: what is checked is that these calls are understood. docs.test.ts runs
  // them on a real podnetd.
  await using server = await serve(playDaemon().routes);
  const answers: Record<string, unknown>[] = [];
  for (const snippet of snippets("api.md", "sh lab")) {
    const env = { ...process.env, PODNET_SOCKET: server.h1 };
    const { stdout } = await execute("sh", ["-c", snippet], { env });
    answers.push(JSON.parse(stdout) as Record<string, unknown>);
  }
  const [created, listed, deleted, refused] = answers;
  t.like(created, { pod: { name: "web" } });
  t.like(listed, { pods: { length: 2 } });
  t.like(deleted, { existed: true });
  t.like(refused, { code: "invalid_argument", message: 'Field "spec.nmae" does not exist' });
});

test("the pod file of docs/reference/pod-spec.md is accepted", async (t) => {
  const { calls, routes } = playDaemon();
  await using server = await serve(routes);
  const file = path.join(server.folder, "pod.yaml");
  writeFileSync(file, snippets("pod-spec.md", "yaml")[0] ?? "");
  const { code, err } = await podnet(["create", "-f", file], { socket: server.h2 });
  t.is(code, 0, err);
  t.like(calls.creates[0]?.spec, {
    resources: { memoryMib: 256 },
    routes: { 0: { destination: "10.0.0.0/8" } },
  });
});

test("the pages of the API name no error code that does not exist", (t) => {
  const pages = read("api.md") + read("pod-spec.md");
  for (const [, code = ""] of pages.matchAll(/`([A-Z]+(?:_[A-Z]+)+)`/g)) {
    if (!/^(?:KIND|PODNET|POD_STATE)_/.test(code))
      t.true((errorCodes as readonly string[]).includes(code), code);
  }
});
