/**
 * Builds the agent, then the image around it. `--debian`: a Debian disk image with the agent as a
 * service, too. `--cloud`: one as Debian's images for clouds are, without an agent. `--arch arm64`:
 * both for machines of that architecture.
 */
import path from "node:path";
import { parseArgs } from "node:util";
import { buildImage } from "../guest-init/image/build-image.ts";
import { agentDisk, buildDebianDisk, cloudDisk } from "../guest-init/image/disk/build-disk.ts";
import { PodnetError } from "../core/errors.ts";
import { buildAgent } from "./agent-build.ts";
import { complainAndFail } from "./complain.ts";

const top = path.resolve(import.meta.dirname, "..");
try {
  const { values } = parseArgs({
    options: {
      debian: { type: "boolean" },
      cloud: { type: "boolean" },
      arch: { type: "string", default: "amd64" },
    },
  });
  const architecture = values.arch;
  if (architecture !== "amd64" && architecture !== "arm64")
    throw new PodnetError("INVALID_ARGUMENT", `There is no image for "${architecture}"`, {
      hint: "Use amd64 or arm64",
    });
  if (architecture === "arm64" && (values.debian || values.cloud))
    throw new PodnetError("UNSUPPORTED", "A Debian disk can be built for amd64 alone", {
      hint: "Build the small image: scripts/build-image --arch arm64",
    });
  const agent = await buildAgent(top, architecture);
  await buildImage(top, agent, architecture);
  if (values.debian) await buildDebianDisk(top, agentDisk(agent));
  if (values.cloud) await buildDebianDisk(top, cloudDisk);
} catch (thrown) {
  complainAndFail("build-image", thrown);
}
