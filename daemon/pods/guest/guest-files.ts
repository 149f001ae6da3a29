import type { FileSpec } from "../../../api/pod-spec.ts";
import { type LivePod, requireGuest } from "../lifecycle/live-pod.ts";

/** Has the agent write the pod's files; answers how many. Can be repeated. */
export async function writeFiles(live: LivePod, signal: AbortSignal): Promise<number> {
  const { files = [] } = live.spec;
  const epoch = live.identity?.epoch;
  for (const { content, ...file } of files)
    await requireGuest(live).placeFile({ ...file, data: Buffer.from(content, "base64") }, signal);
  live.filesEpoch = epoch;
  return files.length;
}

/** Writes the pod's files if the agent has started since: the guest may have booted. */
export async function writeFilesAnew(live: LivePod, signal: AbortSignal): Promise<void> {
  if (live.spec.files === undefined) return;
  const { epoch } = live.identity ?? {};
  if (epoch === undefined || epoch !== live.filesEpoch) await writeFiles(live, signal);
}

/** A file in one line: its content is only for the guest. */
export function fileLine({ path, content, mode, uid, gid }: FileSpec): string {
  const { length } = Buffer.from(content, "base64");
  return `${path}: ${length} bytes, mode ${mode.toString(8).padStart(4, "0")}, owner ${uid}:${gid}`;
}
