import { enableCompileCache } from "node:module";
import path from "node:path";

// A start takes 40 ms instead of 130. Unprivileged users cannot write there, and then start slowly.
enableCompileCache(path.resolve(import.meta.dirname, "../../build/compile-cache"));
const { main } = await import("./start.ts");
main(process.argv.slice(2));
