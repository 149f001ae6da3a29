import type { ContextValues } from "@connectrpc/connect";
import type { InterfaceSpec } from "../../api/pod-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import { callerKey } from "../listeners/callers.ts";

const fields: Readonly<Partial<Record<NonNullable<InterfaceSpec["kind"]>, string>>> = {
  bridge: "bridge",
  tap: "tap_kept",
  cni: "cni",
};

/**
 * Bridges, taps and namespaces of others are whose host it is, and plugins run with all that
 * podnetd may do: only administrators, who could do that anyway, have podnetd do it. Throws
 * `PERMISSION_DENIED`; `fieldOf` names the field of an interface.
 */
export function refuseOthersLinks(
  interfaces: readonly InterfaceSpec[],
  values: Pick<ContextValues, "get">,
  fieldOf: (index: number) => string,
): void {
  if (values.get(callerKey)?.role === "admin") return;
  const at = interfaces.findIndex(({ kind }) => kind !== undefined && fields[kind] !== undefined);
  const kind = interfaces[at]?.kind;
  const name = kind === undefined ? undefined : fields[kind];
  if (name === undefined) return;
  throw new PodnetError(
    "PERMISSION_DENIED",
    "Only administrators may use foreign bridges, taps and namespaces, or those of CNI plugins",
    {
      field: `${fieldOf(at)}.${name}`,
      hint: "Use a network of podnet's: podnet network list",
    },
  );
}
