import type { Guest } from "../../guest-init/channel/guest.ts";

/** Longest a guest's own program may take, milliseconds. */
const programMs = 10_000;
/** Of its output, bytes: a link or an address takes a line. */
const mostOutput = 65_536;

/** How a process ends whose program is not there. */
const notFound = 127;

/**
 * The output of a program in the guest, or of busybox's applet of that name; undefined when it
 * fails, or does not exist.
 */
export async function programIn(
  guest: Guest,
  args: readonly string[],
  signal: AbortSignal,
): Promise<string | undefined> {
  const result = await runIn(guest, args, signal);
  const { code, text } =
    result.code === notFound ? await runIn(guest, ["busybox", ...args], signal) : result;
  return code === 0 ? text : undefined;
}

async function runIn(
  guest: Guest,
  args: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly code: number | undefined; readonly text: string }> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(programMs)]);
  const session = await guest.exec({ args, env: {}, workdir: "/", terminal: false }, limit);
  await session.closeInput();
  let text = "";
  for await (const event of session.events) {
    if (event.kind === "stdout" && text.length < mostOutput)
      text += Buffer.from(event.data).toString("latin1");
    if (event.kind === "exit") return { code: event.code, text };
  }
  return { code: undefined, text };
}
