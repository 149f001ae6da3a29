/** npm's `@podnet/cli`: the command podnet, in one file, for hosts that reach a podnetd by TCP. */
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { bundle, programs } from "../bundle.ts";
import { licensesOf } from "./licenses.ts";
import { own, packagesIn, packNpm } from "./npm.ts";
import type { Release } from "./place-release.ts";

const readme = `# @podnet/cli

The command \`podnet\`, which asks a podnetd for pods of podnet, microVMs with a network.

\`\`\`sh
npm install --global @podnet/cli
podnet --url https://HOST:PORT list
\`\`\`

On podnetd's own host it uses the unix socket. By TCP it needs PEM files: see \`podnet --help\`.
`;

/** Where the program looks for its package.json from. */
const runsIn = "build/programs";

/** Builds the package, and resolves to its path. */
export async function buildCli({ version, into }: Release): Promise<string> {
  const tree = path.join(into, "cli");
  const outdir = path.join(tree, runsIn);
  const entryPoints = { podnet: programs.podnet };
  const made = await bundle({ entryPoints, outdir, runsIn, ending: ".mjs" });
  const program = path.join(outdir, "podnet.mjs");
  writeFileSync(program, `#!/usr/bin/env node\n${readFileSync(program, "utf8")}`);
  chmodSync(program, 0o755);
  writeFileSync(path.join(tree, "LICENSES"), licensesOf(packagesIn([made])));
  const manifest = {
    version,
    description: "The command podnet: pods of podnet, microVMs with a network",
    license: own.license,
    type: "module",
    engines: { node: ">=24" },
    bin: { podnet: `${runsIn}/podnet.mjs` },
    files: ["build", "LICENSES"],
  };
  return packNpm(tree, into, { name: "cli", manifest, readme });
}
