import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { build } from "esbuild";
import { bundle, programs } from "../../../scripts/bundle.ts";
import { withTemporaryFile } from "../../../scripts/temporary-file.ts";

const top = path.resolve(import.meta.dirname, "../../..");

/** Where scripts/program looks for what is newer than what was built. */
const watched = [
  ...readFileSync(path.join(top, "scripts/program"), "utf8").matchAll(
    /"\$here\/\.\.\/([^"./]+)[/"]/g,
  ),
].map(([, room = ""]) => room);

function checkout(): { readonly at: string; started(): string; build(): void } & Disposable {
  const at = mkdtempSync(path.join(tmpdir(), "podnet-programs-"));
  for (const room of [...watched, "daemon/main", "scripts", "bin", "build/programs"])
    mkdirSync(path.join(at, room), { recursive: true });
  cpSync(path.join(top, "scripts/program"), path.join(at, "scripts/program"));
  for (const file of ["package.json", "node_modules/.package-lock.json", "daemon/main/main.ts"])
    writeFileSync(path.join(at, file), "");
  const ask =
    'here=$1/bin; . "$1/scripts/program"; program podnetd daemon/main/main.ts; echo "$program"';
  return {
    at,
    started: () => {
      const said = execFileSync("sh", ["-euc", ask, "sh", at], { encoding: "utf8" });
      return path.relative(at, said.trim());
    },
    build: () => {
      const built = path.join(at, "build/programs/podnetd.mjs");
      writeFileSync(built, "");
      // The kernel's times of files go on in steps of some milliseconds: what is changed from here
      // on is newer.
      const probe = path.join(at, "probe");
      const { mtimeNs } = statSync(built, { bigint: true });
      do writeFileSync(probe, "");
      while (statSync(probe, { bigint: true }).mtimeNs === mtimeNs);
    },
    [Symbol.dispose]: () => rmSync(at, { recursive: true }),
  };
}

test("the built program is started while it is newer than all sources", (t) => {
  using site = checkout();
  t.is(site.started(), "daemon/main/main.ts", "nothing was built");
  site.build();
  t.is(site.started(), "build/programs/podnetd.mjs");
});

const changes: readonly [string, (at: string) => void][] = [
  ["a source that was changed", (at) => writeFileSync(path.join(at, "daemon/main/main.ts"), "1;")],
  ["a source that is new", (at) => writeFileSync(path.join(at, "etcd/new.ts"), "")],
  ["a source that is gone", (at) => rmSync(path.join(at, "daemon/main/main.ts"))],
  [
    "an older source put in its place",
    (at) => {
      const old = path.join(at, "old.ts");
      execFileSync("touch", ["-d", "2001-01-01", old]);
      renameSync(old, path.join(at, "daemon/main/main.ts"));
    },
  ],
  ["other packages", (at) => writeFileSync(path.join(at, "node_modules/.package-lock.json"), "{}")],
  ["a room that is not there", (at) => rmSync(path.join(at, "overlay"), { recursive: true })],
];

for (const [what, change] of changes)
  test(`the sources are started and not what was built: ${what}`, (t) => {
    using site = checkout();
    site.build();
    change(site.at);
    t.is(site.started(), "daemon/main/main.ts");
  });

test("scripts/program looks at each room that a program is made of; podnetd has no languages of zod's", async (t) => {
  const { metafile } = await build({
    absWorkingDir: top,
    entryPoints: { podnetd: "daemon/main/main.ts", podnet: "cli/main.ts" },
    outdir: "build",
    bundle: true,
    write: false,
    metafile: true,
    platform: "node",
    format: "esm",
    external: ["koffi"],
    logLevel: "silent",
  });
  const moduleFolders = new Set(
    Object.keys(metafile.inputs).map((file) => file.split("/")[0] ?? ""),
  );
  t.deepEqual(
    [...moduleFolders].filter((room) => !watched.includes(room)),
    [],
  );
  const parts = Object.entries(metafile.outputs["build/podnetd.js"]?.inputs ?? {});
  t.true(parts.length > 500);
  const languages = parts.filter(
    ([file, { bytesInOutput }]) => file.includes("/zod/v4/locales/") && bytesInOutput > 0,
  );
  t.deepEqual(
    languages.map(([file]) => path.basename(file)),
    ["en.js"],
  );
});

test("a build leaves no temporary file, however it ends, and takes away what killed ones left", async (t) => {
  using site = checkout();
  const directory = path.join(site.at, "build/programs");
  const there = (): string[] => readdirSync(path.join(site.at, "build")).toSorted();
  // Killed long ago; at work just now; and what is no temporary file.
  for (const name of ["programs.4711", "programs.4712", "programs.old", "image.4711"])
    mkdirSync(path.join(site.at, "build", name));
  for (const name of ["programs.4711", "programs.old", "image.4711"])
    utimesSync(path.join(site.at, "build", name), 1, 1);
  const rest = ["image.4711", "programs", "programs.4712", "programs.old"];
  await withTemporaryFile(directory, async (temporary) => {
    t.deepEqual(there(), [...rest, path.basename(temporary)].toSorted());
    writeFileSync(path.join(temporary, "podnetd.mjs"), "");
  });
  t.deepEqual(there(), rest);
  await t.throwsAsync(
    withTemporaryFile(directory, () => Promise.reject(new Error("Injected failure"))),
  );
  t.deepEqual(there(), rest);
});

test("a program takes of Node's modules what it uses, and copies none", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-bundle-"));
  try {
    const outdir = path.join(directory, "programs");
    const entryPoints = { "podnet-images": programs["podnet-images"] };
    await bundle({ entryPoints, outdir, runsIn: "build/programs", ending: ".mjs" });
    const text = readFileSync(path.join(outdir, "podnet-images.mjs"), "utf8");
    t.regex(text, /getBuiltinModule\("node:fs"\)/);
    t.regex(text, /\.createReadStream\b/);
    t.notRegex(text, /__toESM\(|__copyProps\(|WebSocket|webcrypto/);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
