import { flushCompileCache } from "node:module";
import { exit } from "../ffi/libc.ts";

/**
 * The function that `process.exit` calls after its listeners; libraries that listen for the end
 * replace it by a wrapper.
 */
interface Ending {
  reallyExit: (code?: number | string | null) => never;
}

/**
 * From here on `process.exit` ends the process as _exit(2) does, after its listeners have run. Node
 * would otherwise tear down V8 first, and wait for its threads: a thread that compiles may wait for
 * this one to collect garbage, and both wait for ever (nodejs/node#54918; podnetd on Node 24.21.0:
 * docs/decisions/0058). The files that Node writes at its end are written before, except for
 * profiles: a process that is profiled ends in Node's way.
 */
export function endAtOnce(): void {
  if (process.execArgv.some((word) => word.startsWith("--cpu-prof"))) return;
  (process as unknown as Ending).reallyExit = (code) => {
    flushCompileCache();
    exit(Number(code ?? process.exitCode ?? 0));
    throw new Error("_exit(2) has returned");
  };
}
