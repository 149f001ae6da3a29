import type { ContextValues } from "@connectrpc/connect";
import { protectedKey, protectedPrefix } from "../../api/protected-labels.ts";
import type { InterfaceSpec, PodSpec } from "../../api/pod-spec.ts";
import type { ServiceSpec } from "../../api/service-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { callerKey } from "../listeners/callers.ts";

const fields: Readonly<Partial<Record<NonNullable<InterfaceSpec["kind"]>, string>>> = {
  bridge: "bridge",
  tap: "tap_kept",
  cni: "cni",
};

/**
 * Bridges, taps and namespaces of others are whose host it is, plugins run with all that podnetd
 * may do, and who sends anything poses as others: only administrators, who could do that anyway,
 * have podnetd do it. Throws `PERMISSION_DENIED`; `fieldOf` names the field of an interface.
 */
export function refuseOthersLinks(
  interfaces: readonly InterfaceSpec[],
  values: Pick<ContextValues, "get">,
  fieldOf: (index: number) => string,
): void {
  if (values.get(callerKey)?.role === "admin") return;
  for (const [i, { kind, port }] of interfaces.entries()) {
    const name = kind === undefined ? undefined : fields[kind];
    if (name !== undefined)
      throw refused(
        "use foreign bridges, taps and namespaces, or those of CNI plugins",
        `${fieldOf(i)}.${name}`,
        "Use a network of podnet's: podnet network list",
      );
    if (port?.guard === false)
      throw refused(
        "have an interface without a guard, which could pose as its neighbours",
        `${fieldOf(i)}.port.guard`,
        "Leave it out: the guest sends with its own MAC and addresses",
      );
  }
}

/**
 * A pod's own rules come before all policies: only administrators decide what policies do. Throws
 * `PERMISSION_DENIED`.
 */
export function refuseRules(
  { policy }: Pick<PodSpec, "policy">,
  values: Pick<ContextValues, "get">,
): void {
  if (policy !== undefined && values.get(callerKey)?.role !== "admin")
    throw refused(
      "give a pod rules of its own, which come before policies",
      "policy",
      "Leave them out, or ask an administrator for a policy: podnet policy list",
    );
}

/**
 * Policies rely on protected labels: only administrators set and remove them. Throws
 * `PERMISSION_DENIED`; `of` is the field that has the labels.
 */
export function refuseProtectedLabels(
  keys: readonly string[],
  values: Pick<ContextValues, "get">,
  of: string,
): void {
  const key = protectedKey(keys);
  if (key !== undefined && values.get(callerKey)?.role !== "admin")
    throw refused(
      `set or remove labels that begin with ${protectedPrefix}`,
      `${of}["${printable(key)}"]`,
      "Leave it out, or ask an administrator: policies choose pods by such labels",
    );
}

/**
 * A check of a backend outside of podnet has the host ask whoever is there, as the host: only
 * administrators decide that. Throws `PERMISSION_DENIED`; `of` is the field that has the backends.
 */
export function refuseChecksOutside(
  check: ServiceSpec["check"] | undefined,
  backends: ServiceSpec["backends"],
  values: Pick<ContextValues, "get">,
  of: string,
): void {
  if (check === undefined || values.get(callerKey)?.role === "admin") return;
  const outside = backends.findIndex(({ address }) => address !== undefined);
  if (outside >= 0)
    throw refused(
      "have podnetd ask backends that are no pods",
      `${of}[${outside}].address`,
      "Leave the check out, or have an administrator make the service",
    );
}

const refused = (what: string, field: string, hint: string): PodnetError =>
  new PodnetError("PERMISSION_DENIED", `Only administrators may ${what}`, { field, hint });
