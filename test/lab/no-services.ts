import type { LiveServices } from "../../daemon/drift/parts.ts";
import { nothingFound } from "../../network/bridge/inspect.ts";

/** A host without services. */
export const noServices: LiveServices = {
  desired: () => [],
  inspect: async () => nothingFound,
  describe: () => [],
};
