import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";

test("a process ends at once and notifies its listeners, whatever its threads wait for", async (t) => {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-end-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const fifo = path.join(directory, "fifo");
  execFileSync("mkfifo", [fifo]);
  const module = path.resolve(import.meta.dirname, "../../../../linux/processes/process-end.ts");
  // Opening a pipe that is never written to holds a thread of libuv's, which Node would wait for.
  const program = `
    import { open } from "node:fs";
    import { endAtOnce } from ${JSON.stringify(module)};
    endAtOnce();
    process.on("exit", (code) => console.log("reported", code));
    open(${JSON.stringify(fifo)}, "r", () => {});
    setTimeout(() => process.exit(7), 50);`;
  const ended = await new Promise<{ code: unknown; stdout: string }>((resolve) => {
    execFile(
      process.execPath,
      ["--input-type=module", "--eval", program],
      { timeout: 20_000, killSignal: "SIGKILL" },
      (error, stdout) => resolve({ code: error?.code, stdout }),
    );
  });
  t.deepEqual(ended, { code: 7, stdout: "reported 7\n" });
});
