/** Runs a command line in this process, and ends the process with its exit code. */
export async function endWith(run: () => Promise<number>): Promise<never> {
  process.stdout.on("error", ({ code = "unknown" }: NodeJS.ErrnoException) => {
    // The reader has closed our output: end as SIGPIPE would have ended us, which Node ignores.
    if (code === "EPIPE") process.exit(141);
    process.stderr.write(`error: standard output cannot be written (${code})\n`);
    process.exit(1);
  });
  const code = await run();
  // Write errors are reported only after the write; `exitCode` alone would wait for ever for a
  // terminal that is being read.
  await new Promise<void>((resolve) => {
    process.stdout.write("", () => setImmediate(resolve));
  });
  process.exit(code);
}
