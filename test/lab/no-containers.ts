import type { RunningAttachments } from "../../daemon/drift/parts.ts";
import { nothingFound } from "../../network/bridge/inspect.ts";

/** A host without containers, as far as drift is concerned. */
export const noContainers: RunningAttachments = {
  running: () => [],
  fragmentNow: () => undefined,
  inspect: async () => nothingFound,
};
