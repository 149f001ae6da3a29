import type { ContextValues } from "@connectrpc/connect";
import type { InterfaceSpec } from "../../api/pod-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import { callerKey } from "./callers.ts";

/**
 * Bridges and taps of others are whose host it is: only administrators, who could attach to them anyway, have podnetd do
 * it. Throws `PERMISSION_DENIED`; `fieldOf` names the field of an interface.
 */
export function refuseOthersLinks(
  interfaces: readonly InterfaceSpec[],
  values: Pick<ContextValues, "get">,
  fieldOf: (index: number) => string,
): void {
  if (values.get(callerKey)?.role === "admin") return;
  const at = interfaces.findIndex(({ kind }) => kind === "bridge" || kind === "tap");
  if (at < 0) return;
  const name = interfaces[at]?.kind === "bridge" ? "bridge" : "tap_kept";
  throw new PodnetError(
    "PERMISSION_DENIED",
    "A bridge or tap of somebody else is for administrators",
    {
      field: `${fieldOf(at)}.${name}`,
      hint: "Use a network of podnet's: podnet network list",
    },
  );
}
