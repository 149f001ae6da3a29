/**
 * Makes one file of all of podnetd's sources and packages, and one of podnet's: Node finds, reads
 * and links one module where there are 1,200, which is half of a start. Why so:
 * docs/decisions/0054-one-file-to-start.md.
 */
import { mkdirSync, renameSync, utimesSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { isBuiltin } from "node:module";
import path from "node:path";
import { build, type Plugin } from "esbuild";
import { complainAndFail } from "./complain.ts";
import { withTemporaryFile } from "./temporary-file.ts";

const top = path.resolve(import.meta.dirname, "..");
const directory = path.join(top, "build/programs");

/** Programs, and the sources they begin with. bin/podnetd and bin/podnet start them. */
const programs = {
  podnetd: "daemon/main/main.ts",
  podnet: "cli/main.ts",
  "podnet-relay": "relay/main.ts",
} as const;

/** What is a library of machine code stays where it is. */
const external = ["koffi"];

/** Packages from before there were modules ask for others, and for Node's, by this. */
const requireOfOld =
  'const require = process.getBuiltinModule("node:module").createRequire(import.meta.url);';

/**
 * Gives a source that asks for its own path that path, not the one of the program made of it.
 */
const ownPlaces: Plugin = {
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
};

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

async function buildInto(temporary: string): Promise<void> {
  // Taken before the first source is read: what changes meanwhile is newer than what is made.
  const begun = new Date();
  await build({
    absWorkingDir: top,
    entryPoints: programs,
    outdir: temporary,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    legalComments: "none",
    external,
    banner: { js: requireOfOld },
    plugins: [ownPlaces, builtIns],
    logLevel: "warning",
  });
  mkdirSync(directory, { recursive: true });
  for (const name of Object.keys(programs)) {
    utimesSync(path.join(temporary, `${name}.mjs`), begun, begun);
    renameSync(path.join(temporary, `${name}.mjs`), path.join(directory, `${name}.mjs`));
  }
}

try {
  await withTemporaryFile(directory, buildInto);
} catch (thrown) {
  complainAndFail("build-programs", thrown);
}
