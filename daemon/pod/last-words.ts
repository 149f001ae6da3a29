const kept = 600;

/**
 * The end of a guest's console as it may stand in an error or log: from a kernel's panic on if there was one, control
 * characters and escape sequences left out, at most 600 characters.
 */
export function lastWords(console: Uint8Array): string {
  const text = Buffer.from(console.subarray(Math.max(0, console.length - 16_384)))
    .toString("latin1")
    // ECMA-48 control sequences, then whatever else is not printable ASCII.
    .replaceAll(/\u001b\[[0-?]*[ -/]*[@-~]/g, "")
    .replaceAll(/[^\n\u0020-\u007e]/g, "");
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  const panic = lines.findLastIndex((line) => line.includes("Kernel panic"));
  if (panic >= 0) return lines.slice(panic).join("\n").slice(0, kept);
  return lines.join("\n").slice(-kept);
}
