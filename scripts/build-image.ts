/** Builds the agent, then the image around it. */
import path from "node:path";
import { buildImage } from "../guest-init/image/build-image.ts";
import { buildAgent } from "./agent-build.ts";
import { complainAndFail } from "./complain.ts";

const top = path.resolve(import.meta.dirname, "..");
try {
  await buildImage(top, await buildAgent(top));
} catch (thrown) {
  complainAndFail("build-image", thrown);
}
