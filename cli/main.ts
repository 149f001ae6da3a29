import { processIo } from "./io.ts";
import { run } from "./program.ts";

// Whoever reads us has enough: end as SIGPIPE would have ended us, which Node ignores.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  process.exit(error.code === "EPIPE" ? 141 : 1);
});
const code = await run(process.argv.slice(2), processIo());
// What a write comes to is known after it; `exitCode` alone would wait for a terminal being read,
// for ever.
await new Promise<void>((resolve) => {
  process.stdout.write("", () => setImmediate(resolve));
});
process.exit(code);
