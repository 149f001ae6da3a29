import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { stages } from "../../scripts/stages.ts";
import { faults } from "../planted/faults.ts";

const top = path.resolve(import.meta.dirname, "../..");

/**
 * Where tests look for container runtimes and the plugins of others, which set-up unpacks when
 * asked so.
 */
const unpacked: readonly string[] = ["test/lab/container-host.ts", "test/lab/registry.ts"];

const read = (file: string): string => readFileSync(path.join(top, file), "utf8");

/** Whether a file imports another one of the tests or scripts, directly or through others. */
function leadsTo(file: string, wanted: string, seen = new Set<string>()): boolean {
  if (file === wanted) return true;
  if (seen.has(file)) return false;
  seen.add(file);
  return (
    [...read(file).matchAll(/^(?:import|export) [^;]*?"(\.[^"]+\.ts)";$/gms)]
      .map(([, name = ""]) => path.join(path.dirname(file), name))
      // (Texts of tests have such lines, too.)
      .filter((each) => /^(?:test|scripts)\//.test(each) && existsSync(path.join(top, each)))
      .some((each) => leadsTo(each, wanted, seen))
  );
}

test("a stage that runs alone has what its tests run", (t) => {
  const words = /case \$stage in ([^)]+)\) parts="\$parts --cni" ;; esac/.exec(
    read("scripts/test"),
  );
  const needing = stages.filter(({ name, files }) => {
    const noticing = name === "planted" ? faults.map(({ noticedBy }) => noticedBy.file) : [];
    return [...globSync(files, { cwd: top }), ...noticing].some((file) =>
      unpacked.some((lab) => leadsTo(file, lab)),
    );
  });
  t.deepEqual(words?.[1]?.split(" | ").toSorted(), needing.map(({ name }) => name).toSorted());
});

test("a benchmark names the set-up of what it runs", (t) => {
  const needs = { "--cni": unpacked, "--etcd": ["test/lab/etcd-member.ts"] };
  for (const file of globSync("scripts/bench.d/*.ts", { cwd: top })) {
    const [, named = ""] = /^export const setup = "(.*)";$/m.exec(read(file)) ?? [];
    const needed = Object.entries(needs).filter(([, labs]) =>
      labs.some((lab) => leadsTo(file, lab)),
    );
    t.deepEqual(
      named.split(" ").filter((word) => word !== ""),
      needed.map(([option]) => option),
      file,
    );
  }
});
