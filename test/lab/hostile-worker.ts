import type { ImagesProgram } from "../../images/worker/program.ts";

/** In place of podnet-images: leaves the group it was started in, reads nothing, never ends. */
export const hostileWorker: ImagesProgram = {
  argv: ["/usr/bin/setsid", "/usr/bin/sleep", "1234"],
  files: ["/usr/bin/setsid", "/usr/bin/sleep"],
};
