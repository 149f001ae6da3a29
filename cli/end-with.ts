/** Runs a command line in this process, and ends the process with its exit code. */
export async function endWith(run: () => Promise<number>): Promise<never> {
  // The reader has closed our output: end as SIGPIPE would have ended us, which Node ignores.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    process.exit(error.code === "EPIPE" ? 141 : 1);
  });
  const code = await run();
  // Write errors are reported only after the write; `exitCode` alone would wait for ever for a
  // terminal that is being read.
  await new Promise<void>((resolve) => {
    process.stdout.write("", () => setImmediate(resolve));
  });
  process.exit(code);
}
