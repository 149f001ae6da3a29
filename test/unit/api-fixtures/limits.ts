import type { AccessConfig } from "../../../daemon/config/access.ts";
import { resolveConfig } from "../../../daemon/config/config.ts";
import type { ApiLimits } from "../../../daemon/config/limits.ts";

/** The limits podnetd has unless it is told others. */
export const usualLimits: ApiLimits = resolveConfig({
  env: { PODNET_CONFIG: "/dev/null" },
  flags: new Map(),
  file: undefined,
  checkout: "/nowhere",
}).config.limits;

/** Root, who runs the tests, and nobody else. */
export const rootOnly: AccessConfig = { viewer: [], operator: [], admin: [] };
