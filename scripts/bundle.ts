/**
 * One file of a program's sources and packages, by esbuild. Why so:
 * docs/decisions/0054-one-file-to-start.md.
 */
import { copyFile, readFile, rm } from "node:fs/promises";
import { isBuiltin } from "node:module";
import path from "node:path";
import { build, type Metafile, type Plugin } from "esbuild";
import { run } from "../linux/processes/command.ts";

const top = path.resolve(import.meta.dirname, "..");

/** Programs, and the sources they begin with. bin/podnetd and bin/podnet start them. */
export const programs = {
  podnetd: "daemon/main/main.ts",
  podnet: "cli/main.ts",
  "podnet-relay": "relay/main.ts",
  "podnet-images": "images/worker/main.ts",
} as const;

/**
 * Packages that stay packages: koffi and netlink are machine code, and qemu-qmp names a parameter
 * `arguments`, which no module may.
 */
const external = ["koffi", "netlink", "qemu-qmp"];

/** Packages from before there were modules ask for others, and for Node's, by this. */
const requireOfOld =
  'const require = process.getBuiltinModule("node:module").createRequire(import.meta.url);';

/**
 * Gives a source that asks for its own path that path, not the one of the program made of it, which
 * lies in `directory`.
 */
const ownPlaces = (directory: string): Plugin => ({
  name: "own-places",
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, async ({ path: file }) => {
      if (file.includes("/node_modules/")) return undefined;
      const place = path.relative(directory, file);
      const text = await readFile(file, "utf8");
      const contents = text.replaceAll(/import\.meta\.(dirname|url)\b/g, (_asked, what) =>
        what === "url"
          ? `new URL(${JSON.stringify(place)}, import.meta.url).href`
          : `(import.meta.dirname + ${JSON.stringify(`/${path.dirname(place)}`)})`,
      );
      return { contents, loader: "ts" };
    });
  },
});

/**
 * Takes Node's own modules as they are, and of each what the program uses. As an import of CommonJS
 * each source would get a copy of a module, property by property; and that reads all that a module
 * exports, of `node:http` also `WebSocket`, which loads all of undici (a sixth of a start).
 */
const builtIns: Plugin = {
  name: "built-ins",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(?:node:)?[a-z_0-9/]+$/ }, ({ path: asked, kind }) => {
      const name = `node:${asked.replace(/^node:/, "")}`;
      if (!isBuiltin(asked)) return undefined;
      return kind === "require-call"
        ? { path: name, namespace: "built-in" }
        : { path: name, namespace: "imported-built-in", sideEffects: false };
    });
    onLoad({ filter: /^/, namespace: "built-in" }, ({ path: name }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(name)});`,
    }));
    onLoad({ filter: /^/, namespace: "imported-built-in" }, ({ path: name }) => ({
      contents: usedOf(name),
    }));
  },
};

/** A module with the exports of one of Node's, which reads only those that something uses. */
function usedOf(name: string): string {
  const pure = (value: string): string => `/* @__PURE__ */ (() => ${value})()`;
  const names = Object.keys(process.getBuiltinModule(name) as object);
  return [
    `const loaded = ${pure(`process.getBuiltinModule(${JSON.stringify(name)})`)};`,
    "export default loaded;",
    ...names
      .filter((each) => each !== "default")
      .map((each) => `export const ${each} = ${pure(`loaded.${each}`)};`),
  ].join("\n");
}

interface Bundle {
  /** Names of what is made, without an ending, and the sources they begin with. */
  readonly entryPoints: Readonly<Record<string, string>>;
  readonly outdir: string;
  /** The directory in which the programs will lie when they run; the checkout's own names. */
  readonly runsIn: string;
  /** The ending of the files: `.mjs`, or `.ts` in the place of a source. */
  readonly ending: ".mjs" | ".ts";
}

/** Makes one file for each entry point. Resolves to what went into them. */
export async function bundle({ entryPoints, outdir, runsIn, ending }: Bundle): Promise<Metafile> {
  const { metafile } = await build({
    absWorkingDir: top,
    entryPoints,
    outdir,
    outExtension: { ".js": ending },
    bundle: true,
    metafile: true,
    platform: "node",
    format: "esm",
    target: "node24",
    // V8 keeps a program's text in memory, with two bytes a letter if one letter of a comment is
    // not of Latin-1. Names stay, so that a trace says them as the sources do, and so do lines.
    minifyWhitespace: true,
    lineLimit: 120,
    legalComments: "none",
    external,
    banner: { js: requireOfOld },
    plugins: [ownPlaces(path.join(top, runsIn)), builtIns],
    logLevel: "warning",
  });
  return metafile;
}

/**
 * Node's own modules that no snapshot can hold, or that a command seldom needs: they are loaded
 * when something of them is used.
 */
const loadedLater: ReadonlySet<string> = new Set([
  "child_process",
  "dns",
  "http",
  "http2",
  "https",
  "inspector",
  "net",
  "readline",
  "stream/promises",
  "tls",
  "worker_threads",
  "zlib",
]);

/** A module whose exports are looked up when they are used. */
function laterModule(name: string): string {
  const loaded = process.getBuiltinModule(name) as object;
  return `const names = ${JSON.stringify([...Object.keys(loaded), "default"])};
const property = (name) => ({ enumerable: true, get() {
  const loaded = process.getBuiltinModule(${JSON.stringify(name)});
  return name === "default" ? loaded : loaded[name];
} });
module.exports = Object.defineProperties({}, Object.fromEntries(names.map((name) => [name, property(name)])));`;
}

/** As `builtIns`, for a snapshot. */
const builtInsLater: Plugin = {
  name: "built-ins-later",
  setup({ onResolve, onLoad }) {
    const namespace = "built-in";
    onResolve({ filter: /^(?:node:)?[a-z_0-9/]+$/ }, ({ path: name }) =>
      isBuiltin(name) ? { path: name.replace(/^node:/, ""), namespace } : undefined,
    );
    onLoad({ filter: /^/, namespace }, ({ path: name }) => ({
      contents: loadedLater.has(name)
        ? laterModule(name)
        : `module.exports = process.getBuiltinModule(${JSON.stringify(name)});`,
    }));
  },
};

/**
 * As `ownPlaces`: a snapshot is one of a checkout or package whose Node runs it, at
 * node_modules/node-linux-ARCH/bin/node.
 */
const placesByNode: Plugin = {
  name: "places-by-node",
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, async ({ path: file }) => {
      if (file.includes("/node_modules/")) return undefined;
      const place = JSON.stringify(`../../../../${path.relative(top, file)}`);
      const here = `process.getBuiltinModule("node:path").join(process.execPath, ${place})`;
      const text = await readFile(file, "utf8");
      const contents = text.replaceAll(/import\.meta\.(dirname|url)\b/g, (_asked, what) =>
        what === "url"
          ? `process.getBuiltinModule("node:url").pathToFileURL(${here}).href`
          : `process.getBuiltinModule("node:path").dirname(${here})`,
      );
      return { contents, loader: "ts" };
    });
  },
};

/** A slow or busy machine takes long: a first start of podnet is not to fail by it. */
const buildMs = 600_000;

/**
 * Makes `podnet.blob`, the command as a snapshot, in a directory, by the Node that is to run it.
 * docs/decisions/0107-the-command-as-a-snapshot.md
 */
export async function bundleSnapshot(directory: string, node: string): Promise<void> {
  const script = path.join(directory, "podnet-snapshot.cjs");
  await build({
    absWorkingDir: top,
    entryPoints: { "podnet-snapshot": "cli/snapshot.ts" },
    outdir: directory,
    outExtension: { ".js": ".cjs" },
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node24",
    // The text is part of the snapshot, which is read whole at each start.
    minify: true,
    legalComments: "none",
    external,
    plugins: [placesByNode, builtInsLater],
    logLevel: "warning",
  });
  const blob = path.join(directory, "podnet.blob");
  await run([node, "--snapshot-blob", blob, "--build-snapshot", script], { timeoutMs: buildMs });
  await rm(script);
}

/** The files of `podnet ui`'s page: see ui/server/serve-page.ts. */
const pageFiles = ["index.html", "page.css", "icon.svg"] as const;

/** Makes the page's files in a directory. Resolves to what went into its script. */
export async function bundlePage(outdir: string): Promise<Metafile> {
  const { metafile } = await build({
    absWorkingDir: top,
    entryPoints: { page: "ui/page/main.tsx" },
    outdir,
    bundle: true,
    metafile: true,
    minify: true,
    platform: "browser",
    format: "esm",
    target: "es2022",
    tsconfig: path.join(top, "ui/page/tsconfig.json"),
    legalComments: "none",
    logLevel: "warning",
  });
  for (const name of pageFiles)
    await copyFile(path.join(top, "ui/page", name), path.join(outdir, name));
  return metafile;
}
