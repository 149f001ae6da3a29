import type { HandlerContext } from "@connectrpc/connect";
import type * as wire from "../../../api/gen/podnet/v1/image_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { ImportSource } from "../../images/import-source.ts";
import { callerKey } from "../../listeners/callers.ts";
import { note, type ServiceParts } from "../context.ts";
import { progressStream } from "./progress-stream.ts";

export const isAdmin = ({ values }: HandlerContext): boolean =>
  values.get(callerKey)?.role === "admin";

/** An import: its first message says of what, the others are the archive's bytes. */
export async function* streamImport(
  requests: AsyncIterable<wire.ImportImageRequest>,
  parts: ServiceParts,
  context: HandlerContext,
): AsyncGenerator<wire.ImageProgress> {
  const incoming = requests[Symbol.asyncIterator]();
  const first = await incoming.next();
  if (first.done === true || first.value.input.case !== "start")
    throw new PodnetError("INVALID_ARGUMENT", "The first message of an import is not its start", {
      field: "start",
      hint: "Send `start` first, then the archive",
    });
  const { name, choose, path } = first.value.input.value;
  if (path !== "" && !isAdmin(context))
    throw new PodnetError(
      "PERMISSION_DENIED",
      "Only an administrator may name a path of the host",
      {
        field: "path",
        hint: "Send the archive instead: podnet image import reads it itself",
      },
    );
  note(parts, context, `import image ${printable(path)} ${printable(name)}`);
  const source: ImportSource = path === "" ? { upload: dataOf(incoming) } : { path };
  yield* progressStream(
    (report, signal) => parts.imageJobs.import(source, { name, choose }, report, signal),
    context.signal,
  );
}

async function* dataOf(
  requests: AsyncIterator<wire.ImportImageRequest>,
): AsyncGenerator<Uint8Array> {
  for (let next = await requests.next(); next.done !== true; next = await requests.next()) {
    const { input } = next.value;
    if (input.case !== "data")
      throw new PodnetError("INVALID_ARGUMENT", "An import can be started once only", {
        field: "start",
        hint: "Begin another import for another image",
      });
    yield input.value;
  }
}
