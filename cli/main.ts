import { processIo } from "./io.ts";
import { endWith } from "./end-with.ts";
import { run } from "./program.ts";

await endWith(() => run(process.argv.slice(2), processIo()));
