import type { Guest } from "../../guest-init/channel/guest.ts";

/** Longest a guest's own program may take, milliseconds. */
const programMs = 10_000;
/** Of its output, bytes: a link or an address takes a line. */
const mostOutput = 65_536;

/** What a program in the guest prints; undefined when it fails, or is not there. */
export async function programIn(
  guest: Guest,
  args: readonly string[],
  signal: AbortSignal,
): Promise<string | undefined> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(programMs)]);
  const session = await guest.exec({ args, env: {}, workdir: "/", terminal: false }, limit);
  await session.closeInput();
  let text = "";
  for await (const event of session.events) {
    if (event.kind === "stdout" && text.length < mostOutput)
      text += Buffer.from(event.data).toString("latin1");
    if (event.kind === "exit") return event.code === 0 ? text : undefined;
  }
  return undefined;
}
