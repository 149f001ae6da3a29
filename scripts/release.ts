/** Builds what podnet is installed from, into build/release: see scripts/release. */
import { statSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { version as ownVersion } from "../api/version.ts";
import { complainAndFail } from "./complain.ts";
import { buildCli } from "./packaging/cli.ts";
import { buildClient } from "./packaging/client.ts";
import { buildDeb } from "./packaging/deb.ts";
import { placeRelease } from "./packaging/place-release.ts";

const { values } = parseArgs({ options: { version: { type: "string", default: ownVersion } } });

try {
  const { version } = values;
  const files = await placeRelease(async (into) => [
    await buildClient({ version, into }),
    await buildCli({ version, into }),
    await buildDeb({ version, into }),
  ]);
  for (const file of files) {
    const mb = (statSync(file).size / 1e6).toFixed(1);
    console.log(`  ${path.relative(process.cwd(), file)}  ${mb} MB`);
  }
} catch (thrown) {
  complainAndFail("release", thrown);
}
