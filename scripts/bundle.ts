/**
 * One file of a program's sources and packages, by esbuild. Why so:
 * docs/decisions/0054-one-file-to-start.md.
 */
import { copyFile, readFile } from "node:fs/promises";
import { isBuiltin } from "node:module";
import path from "node:path";
import { build, type Metafile, type Plugin } from "esbuild";

const top = path.resolve(import.meta.dirname, "..");

/** Programs, and the sources they begin with. bin/podnetd and bin/podnet start them. */
export const programs = {
  podnetd: "daemon/main/main.ts",
  podnet: "cli/main.ts",
  "podnet-relay": "relay/main.ts",
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
 * Takes Node's own modules as they are. `import` wraps them, and reads all that they export for it:
 * of `node:http` also `WebSocket`, which loads all of undici (a sixth of a start).
 */
const builtIns: Plugin = {
  name: "built-ins",
  setup({ onResolve, onLoad }) {
    const namespace = "built-in";
    onResolve({ filter: /^(?:node:)?[a-z_0-9/]+$/ }, ({ path: name }) =>
      isBuiltin(name) ? { path: name, namespace } : undefined,
    );
    onLoad({ filter: /^/, namespace }, ({ path: name }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(name)});`,
    }));
  },
};

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
