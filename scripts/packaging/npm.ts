import { cpSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Metafile } from "esbuild";
import { run } from "../../linux/processes/command.ts";

const top = path.resolve(import.meta.dirname, "../..");

/** What podnet's own package.json says, which npm's packages repeat. */
export const own = JSON.parse(readFileSync(path.join(top, "package.json"), "utf8")) as {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly license: string;
};

/** Names of npm's packages that went into a bundle. */
export const packagesIn = (made: readonly Pick<Metafile, "inputs">[]): ReadonlySet<string> =>
  new Set(
    made
      .flatMap(({ inputs }) => Object.keys(inputs))
      .flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []),
  );

/** npm's archive of a directory, with these files added. Resolves to its path. */
export async function packNpm(
  tree: string,
  into: string,
  { name, manifest, readme }: { name: string; manifest: object; readme: string },
): Promise<string> {
  mkdirSync(tree, { recursive: true });
  const whole = { name: `@podnet/${name}`, ...manifest };
  writeFileSync(path.join(tree, "package.json"), `${JSON.stringify(whole, null, 2)}\n`);
  writeFileSync(path.join(tree, "README.md"), readme);
  cpSync(path.join(top, "LICENSE"), path.join(tree, "LICENSE"));
  await run(["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", into, tree], {
    timeoutMs: 60_000,
  });
  const [file] = globSync(`podnet-${name}-*.tgz`, { cwd: into });
  if (file === undefined) throw new Error("npm pack made no archive");
  return path.join(into, file);
}
