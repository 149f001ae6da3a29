const kept = 600;

/**
 * The end of a guest's console as it may stand in an error or log: from a kernel's panic on if
 * there was one, control characters and escape sequences left out, at most 600 characters.
 */
export function consoleTailText(console: Uint8Array): string {
  const lines = lastLines(console);
  const panic = lines.findLastIndex(isPanic);
  if (panic >= 0) return lines.slice(panic).join("\n").slice(0, kept);
  return lines.join("\n").slice(-kept);
}

/**
 * The line with which a kernel panicked, at most 200 characters, when the console ends with the
 * restart that follows a panic (`panic=1`: the kernel's last line is `Rebooting in 1 seconds..`,
 * kernel/panic.c); else undefined. For a machine that has just been reset: an earlier panic does
 * not count.
 */
export function panicBeforeReset(console: Uint8Array): string | undefined {
  const lines = lastLines(console);
  if (!/Rebooting in \d+ seconds|Kernel panic/.test(lines.at(-1) ?? "")) return undefined;
  return lines
    .findLast(isPanic)
    ?.replace(/^.*?(?=Kernel panic)/, "")
    .slice(0, 200);
}

const isPanic = (line: string): boolean => line.includes("Kernel panic");

/** The last 16 KiB as lines without blanks, control characters and escape sequences. */
function lastLines(console: Uint8Array): readonly string[] {
  const text = Buffer.from(console.subarray(Math.max(0, console.length - 16_384)))
    .toString("latin1")
    // ECMA-48 control sequences, then whatever else is not printable ASCII.
    .replaceAll(/\u001b\[[0-?]*[ -/]*[@-~]/g, "")
    .replaceAll(/[^\n\u0020-\u007e]/g, "");
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}
