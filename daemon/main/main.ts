import { Headers } from "headers-polyfill";
import { main } from "./command.ts";
import { SharedAbortController } from "./shared-abort.ts";

// With Node's own the first call would load all of undici: 18 MiB, and a tenth of a start.
(globalThis as { Headers: unknown }).Headers = Headers;
// The reason of each abort would have a trace: see there.
globalThis.AbortController = SharedAbortController;
await main(process.argv);
