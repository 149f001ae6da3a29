import { PodnetError } from "../../core/errors.ts";
import type { Route } from "./routes.ts";

const refused = (
  method: Route["method"],
  path: string,
  what: string,
  hint = "See docs/reference/hyperd.md for the calls that work",
): Route => ({
  method,
  path,
  parameters: "refused",
  role: "viewer",
  answer: () => {
    throw new PodnetError("UNSUPPORTED", `podnet ${what}`, { hint });
  },
});

const machines = "makes a machine with its pod, and none without";
const images = "does not build, save or push images for hyperctl";

/** What hyperd answers and podnet does not. */
export const refusedCalls: readonly Route[] = [
  refused("POST", "/container/commit", "does not make images of containers"),
  refused("POST", "/vm/create", machines),
  refused("DELETE", "/vm", machines),
  refused("POST", "/image/build", images, "Import an archive: podnet image import"),
  refused("POST", "/image/push", images),
  refused("GET", "/images/save", images),
  refused("POST", "/auth", "does not take credentials", "Put them into images.auth_file"),
];
