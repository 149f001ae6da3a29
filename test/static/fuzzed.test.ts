import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import test from "ava";
import type { Target } from "../fuzz/engine/target.ts";

const top = path.resolve(import.meta.dirname, "../..");
const moduleFolders =
  "{core,ipallocator,policy,relay,linux,network,hypervisor,guest-init,images,api,etcd,kubernetes,overlay,cni,cli,daemon}/**/*.ts";
const reader = /^export (?:async )?(?:function\*? |const )((?:parse|decode|read)[A-Z]\w*)/gm;

/** Readers that no fuzz target feeds by name, each with why. */
const elsewhere: Readonly<Record<string, string>> = {
  "api/telemetry/trace-context.ts: parseTraceparent":
    "one pattern; test/unit/api/telemetry/telemetry.test.ts gives it any text",
  "cli/commands/apply/documents.ts: readAsked": "npm's yaml and `readJson` parse what it is given",
  "cli/pod-file.ts: readDocuments":
    "reads a file; npm's yaml parses it, and podnetd reads the rest",
  "cli/pod-file.ts: readPodFile": "reads a file; npm's yaml and `readJson` parse it",
  "cli/pod-file.ts: readRulesFile": "reads a file; podnetd reads what npm's yaml makes of it",
  "cli/pod-file.ts: readText": "reads a file whole; looks at none of it",
  "daemon/containers/cni/read-body.ts: readBody":
    "reads a request's body whole; looks at none of it",
  "daemon/pods/process/process-log.ts: readLog":
    "test/unit/daemon/pods/process/process-log.test.ts has any bytes in a log",
  "daemon/store/commit-mark.ts: readMark":
    "a line of podnetd's own with its checksum, of a directory that is podnetd's alone",
  "guest-init/agent/files.ts: readFile": "reads a file whole; looks at none of it",
  "guest-init/agent/files.ts: readText": "reads a file whole; looks at none of it",
  "guest-init/agent/guest-files.ts: readGuestFile": "`parseReadFile` reads the request",
  "guest-init/image/debian.ts: readJson": "a file that the image's build wrote itself",
  "hypervisor/jail/report.ts: readReport": "`parseReport` reads what it collects",
  "images/archive/image.ts: readImage": "test/fuzz/image-layers.test.ts feeds it, for it waits",
  "images/registry/registry-client.ts: readAnswer": "reads an answer whole; looks at none of it",
  "images/tar/read-tar.ts: readTar": "test/fuzz/image-layers.test.ts feeds it, for it waits",
  "images/tar/sparse.ts: readSparse": "test/fuzz/image-layers.test.ts feeds it, for it waits",
  "ipallocator/space.ts: parseIpv4":
    "test/unit/ipallocator/parts.test.ts compares it with `parseIp`",
  "kubernetes/access.ts: readSource": "reads a file whole; looks at none of it",
  "kubernetes/access.ts: readToken": "a file of the administrator's, against one pattern",
  "kubernetes/access.ts: parseServer":
    "node's URL parses it; test/unit/kubernetes/kubeconfig.test.ts has what it refuses",
  "kubernetes/kubeconfig.ts: parseKubeconfig":
    "a file of the administrator's; npm's yaml parses it, and it waits",
  "linux/files/regular-file.ts: readRegular": "reads a file whole; looks at none of it",
  "linux/sysctl.ts: readSysctl": "a line of the kernel's without its end",
  "network/bridge/observe.ts: readOptional": "`readSysctl`, if there is such a setting",
};

const isTarget = (value: unknown): value is Target =>
  typeof value === "object" && value !== null && "files" in value && "run" in value;

/** Every target there is. */
async function targets(): Promise<Target[]> {
  const files = globSync("test/fuzz/targets/*.ts", { cwd: top });
  const modules = await Promise.all(
    files.map(
      (file) =>
        import(pathToFileURL(path.join(top, file)).href) as Promise<Record<string, unknown>>,
    ),
  );
  return modules.flatMap((module) => Object.values(module).flat().filter(isTarget));
}

test("every reader of foreign bytes is fuzzed, or it is said why not", async (t) => {
  const all = await targets();
  t.true(all.length > 30);
  const fed = (file: string, name: string): boolean =>
    all.some(
      ({ files, only, except }) =>
        files.includes(file) &&
        (only === undefined || only.includes(name)) &&
        except?.includes(name) !== true,
    );
  const readers = globSync(moduleFolders, { cwd: top })
    .filter((file) => !/^(?:api|etcd)\/gen\//.test(file))
    .sort()
    .flatMap((file) =>
      [...readFileSync(path.join(top, file), "utf8").matchAll(reader)].map(
        ([, name = ""]) => [file, name] as const,
      ),
    );
  t.true(readers.length > 70);
  const missing = readers
    .filter(([file, name]) => !fed(file, name))
    .map(([file, name]) => `${file}: ${name}`);
  t.deepEqual(missing, Object.keys(elsewhere).sort());
});

test("the work of each file that a target sets apart is judged in another", async (t) => {
  const all = await targets();
  const apart = new Set(all.flatMap((target) => target.apart ?? []));
  t.true(apart.size > 0);
  for (const file of apart)
    t.true(
      all.some(({ files, apart = [] }) => files.includes(file) && !apart.includes(file)),
      file,
    );
});
