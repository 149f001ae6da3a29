import { randomBytes } from "node:crypto";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { joinBytes } from "../protocol/bytes.ts";
import { command } from "../protocol/codes.ts";
import { encodeCtlFrame } from "../protocol/ctl-frame.ts";
import type { CallOptions, Control } from "./control.ts";
import type { Reply } from "./pending.ts";

/**
 * Number of answers, recognized by their order alone: left-over ones match by chance once in four
 * thousand million.
 */
const length = 32;

const isVersion = (reply: Reply): boolean => reply.kind === "ack" && reply.payload.length === 4;
const isPong = (reply: Reply): boolean => reply.kind === "ack" && reply.payload.length === 0;

/**
 * Skips every answer that is left from an earlier daemon or to an earlier agent: afterwards each
 * answers a command of this daemon. hyperstart's answers carry no ids, but they come in order, so
 * the shapes of the answers identify a random sequence of GETVERSION and PING.
 *
 * One GETVERSION goes ahead. A guest that waits for the rest of an unfinished command takes it for
 * that rest and is silent; more could be read as a header of any length, which kills a hyperstart.
 * Throws `AGENT_TIMEOUT`.
 */
export async function synchronize(control: Control, options: CallOptions): Promise<void> {
  try {
    await control.request(command.getVersion, undefined, { ...options, accepts: isVersion });
  } catch (error) {
    if (!isPodnetError(error, "AGENT_TIMEOUT")) throw error;
    throw new PodnetError("AGENT_TIMEOUT", "The guest's agent did not identify itself", {
      hint: "It may be booting or hang, or wait for the rest of a command of a podnetd that was killed: see its console",
      cause: error,
    });
  }
  const bits = randomBytes(length / 8);
  const sequence = Array.from({ length }, (_, i) => ((bits[i >> 3] as number) >> (i & 7)) % 2);
  const codes = sequence.map((bit) => (bit === 1 ? command.getVersion : command.ping));
  const latest: Reply[] = [];
  await control.exchange(joinBytes(codes.map((code) => encodeCtlFrame(code))), {
    ...options,
    code: command.getVersion,
    accepts: (reply) => {
      latest.push(reply);
      if (latest.length > length) latest.shift();
      return (
        latest.length === length &&
        codes.every((code, i) => (code === command.ping ? isPong : isVersion)(latest[i] as Reply))
      );
    },
  });
  // All but the last of the sequence's own answers were passed over too.
  control.counters.staleReplies -= length - 1;
}
