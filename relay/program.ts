import path from "node:path";

/** What the relay's program consists of: its command line begins so, and it reads these files. */
export interface RelayProgram {
  readonly argv: readonly [node: string, program: string];
  readonly files: readonly string[];
}

/**
 * The program as scripts/build-programs makes it, in a checkout; `node` runs it. Its one package is
 * the library for foreign calls.
 */
export function relayProgram(checkout: string, node: string): RelayProgram {
  const program = path.join(checkout, "build/programs/podnet-relay.mjs");
  const packages = path.join(checkout, "node_modules");
  const library = `@koromix/koffi-linux-${process.arch}`;
  const files = [
    "koffi/package.json",
    "koffi/index.js",
    "koffi/src/koffi/index.js",
    "koffi/src/koffi/src/static.js",
    `${library}/package.json`,
    `${library}/index.js`,
    `${library}/linux_${process.arch}/koffi.node`,
  ];
  return {
    argv: [node, program],
    files: [program, ...files.map((each) => path.join(packages, each))],
  };
}
