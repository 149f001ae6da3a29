import type { RunningPorts } from "../../daemon/drift/parts.ts";
import { nothingFound } from "../../network/bridge/inspect.ts";

/** A host without pods, as far as drift is concerned. */
export const noPods: RunningPorts = {
  runningPorts: () => [],
  portNow: () => undefined,
  rulesNow: () => undefined,
  runningJoins: () => [],
  joinNow: () => undefined,
  inspectJoin: async () => nothingFound,
};
