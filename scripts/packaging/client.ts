/**
 * npm's `@podnet/client`: the sources of `client/` and what they import, as JavaScript with types,
 * one file for each source. Runs on Node 20 and newer.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { run } from "../../linux/processes/command.ts";
import { own, packNpm } from "./npm.ts";
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
  return packNpm(tree, into, { name: "client", manifest: manifest(version), readme });
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

function manifest(version: string): object {
  const { dependencies, license } = own;
  const used = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];
  const entry = { types: "./dist/client/index.d.ts", default: "./dist/client/index.js" };
  return {
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
