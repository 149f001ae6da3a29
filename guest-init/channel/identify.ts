import { randomUUID } from "node:crypto";
import { PodnetError } from "../../core/errors.ts";
import { command } from "../protocol/codes.ts";
import { encodeHelloRequest, parseHelloReply } from "../protocol/extension-messages.ts";
import { parseVersion } from "../protocol/replies.ts";
import type { CallOptions, Control } from "./control.ts";
import type { GuestIdentity } from "./guest.ts";
import type { Reply } from "./pending.ts";
import { synchronize } from "./synchronize.ts";

/**
 * API versions whose messages are the ones spoken here: 4243 and 4244 differ in nothing podnet
 * uses.
 */
const spokenApis: readonly number[] = [4243, 4244];

/**
 * Asks the agent who it is: GETVERSION, then HELLO, which a plain hyperstart answers with ERROR.
 * `fresh` means that nothing was ever sent on this channel; otherwise answers may be left over,
 * which are passed over first. Throws `AGENT_PROTOCOL`, `AGENT_TIMEOUT`, `UNSUPPORTED`.
 */
export async function identify(
  control: Control,
  options: CallOptions & {
    readonly fresh: boolean;
    /** Versions of the extension to offer; an agent that supports none of them refuses. */
    readonly versions: readonly number[];
  },
): Promise<GuestIdentity> {
  const { fresh, versions, deadlineMs, signal } = options;
  if (!fresh) await synchronize(control, { deadlineMs, signal });
  const ask = (code: number, payload?: Uint8Array) =>
    control.request(code, payload, { deadlineMs, signal, accepts: () => true });

  const api = versionOf(await ask(command.getVersion));
  if (!spokenApis.includes(api))
    throw new PodnetError("UNSUPPORTED", `The guest speaks API ${api}, not 4244`, {
      hint: "Use an image with hyperstart 1.x or podnet's own agent",
    });

  const nonce = randomUUID();
  const answer = await ask(command.hello, encodeHelloRequest({ versions, nonce }));
  if (answer.kind === "error") return { api, extension: undefined, agent: undefined };
  const hello = parseHelloReply(answer.payload);
  if (hello.nonce !== nonce)
    throw new PodnetError("AGENT_PROTOCOL", "The agent answered another host's HELLO");
  if (!versions.includes(hello.version))
    throw new PodnetError(
      "AGENT_PROTOCOL",
      `The agent picked version ${hello.version}, not offered`,
    );
  const { version: extension, agent, epoch, features } = hello;
  return { api, extension, agent, epoch, ...(features === undefined ? {} : { features }) };
}

function versionOf(reply: Reply): number {
  if (reply.kind === "error")
    throw new PodnetError("AGENT_PROTOCOL", "The guest refused to report its version");
  return parseVersion(reply.payload);
}
