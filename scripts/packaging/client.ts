/**
 * npm's `@podnet/client`: the sources of `client/` and what they import, as JavaScript with types,
 * one file for each source. Runs on Node 20 and newer.
 */
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { run } from "../../linux/processes/command.ts";
import type { Release } from "./place-release.ts";

const top = path.resolve(import.meta.dirname, "../..");

const readme = `# @podnet/client

Pods of podnet, microVMs with a network, from a program.

\`\`\`js
import { connect } from "@podnet/client";

using podnet = connect();
await using pod = await podnet.pods.create({ name: "web" });
const { stdout } = await pod.exec(["uname", "-a"]);
await pod.files.write("/tmp/greeting", "hello");
await pod.waitFor("port:22");
\`\`\`

\`using\` needs TypeScript 5.2 or Node 24; otherwise call \`pod.delete()\` and \`podnet.close()\`.
Every call throws \`PodnetError\` with \`code\`, \`message\`, \`hint\`, \`field\`, \`step\` and \`details\`.
\`podnet.services\` has the generated clients of the whole API.
`;

/** Builds the package, and resolves to its path. */
export async function buildClient({ version, into }: Release): Promise<string> {
  const tree = path.join(into, "client");
  mkdirSync(tree, { recursive: true });
  const config = path.join(tree, "tsconfig.json");
  writeFileSync(config, JSON.stringify(compilation(tree)));
  await run([path.join(top, "node_modules/.bin/tsc"), "-p", config], {
    timeoutMs: 120_000,
    env: { PATH: `${path.dirname(process.execPath)}:${process.env["PATH"] ?? ""}` },
  });
  rmSync(config);
  writeFileSync(path.join(tree, "package.json"), `${JSON.stringify(manifest(version), null, 2)}\n`);
  writeFileSync(path.join(tree, "README.md"), readme);
  cpSync(path.join(top, "LICENSE"), path.join(tree, "LICENSE"));
  return packed(tree, into);
}

/** How tsc compiles them: declarations name each other with the endings of their files. */
const compilation = (tree: string): unknown => ({
  extends: path.join(top, "tsconfig.json"),
  compilerOptions: {
    noEmit: false,
    declaration: true,
    incremental: false,
    tsBuildInfoFile: null,
    rewriteRelativeImportExtensions: true,
    target: "es2022",
    rootDir: top,
    outDir: path.join(tree, "dist"),
    typeRoots: [path.join(top, "node_modules/@types")],
  },
  include: [],
  files: [path.join(top, "client/index.ts")],
});

function manifest(version: string): unknown {
  const { dependencies, license } = JSON.parse(
    readFileSync(path.join(top, "package.json"), "utf8"),
  ) as { dependencies: Record<string, string>; license: string };
  const used = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];
  const entry = { types: "./dist/client/index.d.ts", default: "./dist/client/index.js" };
  return {
    name: "@podnet/client",
    version,
    description: "Pods of podnet, microVMs with a network, from a program",
    license,
    type: "module",
    engines: { node: ">=20.20" },
    exports: { ".": entry, "./package.json": "./package.json" },
    types: entry.types,
    files: ["dist"],
    dependencies: Object.fromEntries(used.map((name) => [name, dependencies[name]])),
  };
}

/** npm's archive of a directory. */
async function packed(tree: string, into: string): Promise<string> {
  await run(["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", into, tree], {
    timeoutMs: 60_000,
  });
  const [file] = globSync("*.tgz", { cwd: into }).filter((name) =>
    name.startsWith("podnet-client"),
  );
  if (file === undefined) throw new Error("npm pack made no archive");
  return path.join(into, file);
}
