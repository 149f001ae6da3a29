/**
 * The command as a snapshot of V8's heap: every module has run, and the tree of commands is built.
 * A start takes half of the time. docs/decisions/0107-the-command-as-a-snapshot.md.
 */
import { startupSnapshot } from "node:v8";
import { Headers } from "headers-polyfill";
import { connectPodnet } from "../api/client.ts";
import { contextOf } from "./context.ts";
import { endWith } from "./end-with.ts";
import { processIo } from "./io.ts";
import { buildProgram, runProgram } from "./program.ts";
import { targetOf } from "./target.ts";

const io = processIo();
const context = contextOf(
  // (The API's client is part of the snapshot too; io.ts would load it when it is needed.)
  Object.assign(io, {
    connect: async (options: Parameters<typeof targetOf>[0]) =>
      connectPodnet({ ...targetOf(options, process.env, io.trace), quickUnary: true }),
  }),
);
(globalThis as { Headers: unknown }).Headers = Headers;
const program = buildProgram(context);

startupSnapshot.setDeserializeMainFunction(() => {
  // The first word is Node's own path.
  void endWith(() => runProgram(program, context, process.argv.slice(1)));
});
