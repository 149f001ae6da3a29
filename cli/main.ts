import { processIo } from "./io.ts";
import { run } from "./program.ts";

const code = await run(process.argv.slice(2), processIo());
// Not `exitCode` alone: a terminal being read would keep the process.
process.exit(code);
