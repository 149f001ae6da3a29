import manifest from "../package.json" with { type: "json" };

/** podnet's version. */
export const version: string = manifest.version;
