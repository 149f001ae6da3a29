import { flushCompileCache } from "node:module";
import { exit } from "./ffi/libc.ts";

/**
 * What `process.exit` calls when its listeners have been told; libraries that listen for the end
 * put themselves before it.
 */
interface Ending {
  reallyExit: (code?: number | string | null) => never;
}

/**
 * From here on `process.exit` ends the process as _exit(2) does, once its listeners have been told.
 * Node would take V8 apart before, and wait for its threads: one that compiles may be waiting for
 * this one to collect garbage, and both wait for ever (nodejs/node#54918; podnetd on Node 24.21.0:
 * docs/decisions/0058). What Node writes at its end it is given before, but for profiles: where it
 * is to write one it ends in its own way.
 */
export function endAtOnce(): void {
  if (process.execArgv.some((word) => word.startsWith("--cpu-prof"))) return;
  (process as unknown as Ending).reallyExit = (code) => {
    flushCompileCache();
    exit(Number(code ?? process.exitCode ?? 0));
    throw new Error("_exit(2) has returned");
  };
}
