import { execFile } from "node:child_process";
import {
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";

const script = path.resolve(import.meta.dirname, "../../../../daemon/own-cgroup");
const user = 64_056;

/** A tree as the kernel shows it; answers its top. */
function tree(t: ExecutionContext, files: readonly string[]): string {
  const top = mkdtempSync(path.join(tmpdir(), "podnet-own-"));
  t.teardown(() => rmSync(top, { recursive: true, force: true }));
  for (const file of files) {
    mkdirSync(path.dirname(path.join(top, file)), { recursive: true });
    writeFileSync(path.join(top, file), "");
  }
  return top;
}

/** What the user has got of it. */
const given = (top: string): readonly string[] =>
  globSync("**", { cwd: top })
    .filter((file) => statSync(path.join(top, file)).uid === user)
    .toSorted();

const group = ["cgroup.procs", "cgroup.subtree_control", "memory.max", "pids.max"];

test("of version 2 podnetd's user gets one directory, and nothing of the top", async (t) => {
  const top = tree(t, [
    "cgroup.controllers",
    "cgroup.procs",
    "cgroup.subtree_control",
    ...group.map((file) => `podnet/${file}`),
    "system.slice/cgroup.procs",
  ]);
  await promisify(execFile)(script, [`${user}`, "podnet", top]);
  t.deepEqual(given(top), ["podnet", "podnet/cgroup.procs", "podnet/cgroup.subtree_control"]);
  t.is(readFileSync(path.join(top, "cgroup.subtree_control"), "utf8"), "+memory +pids\n");
});

test("of version 1 it gets one directory of each hierarchy", async (t) => {
  const hierarchies = ["memory", "pids"].flatMap((name) => [
    `${name}/cgroup.procs`,
    `${name}/tasks`,
    `${name}/one/cgroup.procs`,
    `${name}/one/${name}.limit`,
  ]);
  const top = tree(t, hierarchies);
  await promisify(execFile)(script, [`${user}`, "one", top]);
  t.deepEqual(given(top), [
    "memory/one",
    "memory/one/cgroup.procs",
    "pids/one",
    "pids/one/cgroup.procs",
  ]);
});
