import { enableCompileCache } from "node:module";
import path from "node:path";

// Saves a third of the start. Beside the sources, so that whoever can change it can change them too.
enableCompileCache(path.resolve(import.meta.dirname, "../build/compile-cache"));
const { main } = await import("./command.ts");
await main(process.argv);
