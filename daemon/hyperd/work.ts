import { callerKey } from "../listeners/callers.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import type { Asking } from "./routes.ts";

/** The caller's end undoes a create, and fails a start. */
export function work({ signal, values }: Asking): CreateOptions {
  const caller = values.get(callerKey);
  return {
    signal,
    progress: { started: () => {}, finished: () => {} },
    imagesOnly: caller?.role !== "admin",
    ...(caller === undefined ? {} : { admit: () => caller.create() }),
  };
}
