/**
 * Does one job on images as podnetd does, for tests that kill podnetd within it: DIRECTORY, then
 * `pull NAME`, `import PATH`, or `hostile PATH` with a worker that never ends by itself.
 */
import { armFailpoints } from "../../daemon/main/failpoints.ts";
import { openImageStore } from "./image-store.ts";
import { hostileWorker } from "./hostile-worker.ts";

const [directory = "", act = "", what = ""] = process.argv.slice(2);
const store = await openImageStore(directory, {
  insecure: ["localhost:5011"],
  ...(act === "hostile" ? { program: hostileWorker } : {}),
});
armFailpoints(process.env["PODNET_FAILPOINTS"]);
await (act === "pull" ? store.pull(what) : store.importIt({ path: what }, "image:1"));
