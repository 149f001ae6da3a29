import { randomUUID } from "node:crypto";
import { PodnetError } from "../../core/errors.ts";
import { command } from "../protocol/codes.ts";
import type { HelloReply } from "../protocol/configure.ts";
import { encodeHelloRequest, parseHelloReply } from "../protocol/extension-messages.ts";
import { parseVersion } from "../protocol/replies.ts";
import type { Control } from "./control.ts";
import type { GuestIdentity } from "./guest.ts";
import type { Reply } from "./pending.ts";

/** API versions whose messages are the ones spoken here: 4243 and 4244 differ in nothing podnet uses. */
const spokenApis: readonly number[] = [4243, 4244];

/**
 * Asks the agent who it is: GETVERSION, then HELLO, which a plain hyperstart answers with ERROR.
 *
 * `fresh` means that nothing was ever sent on this channel, so every answer is to us. Otherwise answers
 * to commands of an earlier daemon, or given to an earlier agent, may come first: they are dropped until one
 * fits, by its shape for GETVERSION and by the nonce for HELLO.
 * Throws `AGENT_PROTOCOL`, `AGENT_TIMEOUT`, `UNSUPPORTED`.
 */
export async function identify(
  control: Control,
  options: {
    readonly fresh: boolean;
    /** Versions of the extension to offer; an agent that knows none of them refuses. */
    readonly versions: readonly number[];
    readonly deadlineMs: number;
    readonly signal: AbortSignal;
  },
): Promise<GuestIdentity> {
  const { fresh, versions, deadlineMs, signal } = options;
  const nonce = randomUUID();
  const ask = (code: number, payload: Uint8Array | undefined, fits: (reply: Reply) => boolean) =>
    control.request(code, payload, {
      deadlineMs,
      signal,
      accepts: (reply) => fresh || fits(reply),
    });

  const isVersion = (reply: Reply): boolean => reply.kind === "ack" && reply.payload.length === 4;
  const api = versionOf(await ask(command.getVersion, undefined, isVersion));
  if (!spokenApis.includes(api))
    throw new PodnetError("UNSUPPORTED", `The guest speaks API ${api}, not 4244`, {
      hint: "Use an image with hyperstart 1.x or podnet's own agent",
    });

  let hello: HelloReply | undefined;
  const isHello = (reply: Reply): boolean => {
    const found = freshHello(reply, nonce);
    hello ??= found;
    return found !== undefined;
  };
  const request = encodeHelloRequest({ versions, nonce });
  const answered = ask(command.hello, request, (reply) => isHello(reply) || reply.kind === "error");
  if (fresh) {
    const answer = await answered;
    if (answer.kind === "ack") hello = parseHelloReply(answer.payload);
  } else {
    // An ERROR may be left over as well. What answers HELLO comes before what answers this.
    const after = ask(command.getVersion, undefined, (r) => !isHello(r) && isVersion(r));
    await Promise.all([answered, after]);
  }
  if (hello !== undefined && !versions.includes(hello.version))
    throw new PodnetError(
      "AGENT_PROTOCOL",
      `The agent picked version ${hello.version}, not offered`,
    );
  if (hello === undefined) return { api, extension: undefined, agent: undefined };
  return { api, extension: hello.version, agent: hello.agent, epoch: hello.epoch };
}

function versionOf(reply: Reply): number {
  if (reply.kind === "error")
    throw new PodnetError("AGENT_PROTOCOL", "The guest refused to tell its version");
  return parseVersion(reply.payload);
}

function freshHello(reply: Reply, nonce: string): HelloReply | undefined {
  if (reply.kind === "error") return undefined;
  try {
    const hello = parseHelloReply(reply.payload);
    return hello.nonce === nonce ? hello : undefined;
  } catch {
    return undefined;
  }
}
