import type { BackendChange, BackendSpec } from "../../api/service-spec.ts";
import { checkBackends } from "../../api/validate/service.ts";
import { PodnetError } from "../../core/errors.ts";
import type { ServiceDefinition } from "./store.ts";

const nameOf = ({ pod, address }: BackendSpec): string => pod ?? address;

/**
 * A service with some of its backends changed; the others stay, in their order. Pure. Throws
 * `INVALID_ARGUMENT`.
 */
export function changeBackends(
  before: ServiceDefinition,
  { set, remove }: BackendChange,
): ServiceDefinition {
  const had = new Set(before.backends.map(nameOf));
  const missing = remove.find((name) => !had.has(name));
  if (missing !== undefined)
    throw new PodnetError("INVALID_ARGUMENT", `"${missing}" is not a backend that was named`, {
      field: "remove",
      hint: "See podnet service inspect; what --select chooses goes with its label",
    });
  const gone = new Set(remove);
  const changed = new Map(set.map((each) => [nameOf(each), each]));
  const backends = [
    ...before.backends
      .filter((each) => !gone.has(nameOf(each)))
      .map((each) => changed.get(nameOf(each)) ?? each),
    ...set.filter((each) => !had.has(nameOf(each)) || gone.has(nameOf(each))),
  ];
  checkBackends(backends, before.ports.length, "set");
  return { ...before, backends };
}
