/**
 * Builds the agent, then the image around it. `--debian`: a Debian disk image with the agent as a service in it, too.
 */
import path from "node:path";
import { buildImage } from "../guest-init/image/build-image.ts";
import { buildDebianDisk } from "../guest-init/image/disk/build-disk.ts";
import { PodnetError } from "../core/errors.ts";
import { buildAgent } from "./agent-build.ts";
import { complainAndFail } from "./complain.ts";

const top = path.resolve(import.meta.dirname, "..");
try {
  const words = process.argv.slice(2);
  const unknown = words.find((word) => word !== "--debian");
  if (unknown !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", `"${unknown}" is not an option of build-image`, {
      hint: "Options: --debian",
    });
  const agent = await buildAgent(top);
  await buildImage(top, agent);
  if (words.includes("--debian")) await buildDebianDisk(top, agent);
} catch (thrown) {
  complainAndFail("build-image", thrown);
}
