import { readFileSync } from "node:fs";

const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");

/** podnet's version, from package.json: that of podnetd and of the command line. */
export const version: string = (JSON.parse(manifest) as { version: string }).version;
