import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { familyOf, type Ip } from "../../core/address.ts";
import { perform } from "../../core/effect.ts";
import { guarded } from "../../core/guard.ts";
import { framed, MessageStream } from "./message-stream.ts";
import { isAnswer, type Query, withId } from "./query.ts";

/** Where servers listen, and podnet's resolver. */
export const dnsPort = 53;

/** How a query came, and goes on. */
export type Way = "udp" | "tcp";

/**
 * Forwards a query to a server and returns its answer, with the id of the query. It uses a new
 * socket, whose port the kernel draws at random, and an unpredictable id: answers that do not match
 * both are ignored. Undefined when no answer comes in time, or before `signal` aborts.
 */
export async function askUpstream(
  query: Query,
  server: Ip,
  way: Way,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<Uint8Array | undefined> {
  if (signal?.aborted === true) return undefined;
  const id = randomInt(0x1_0000);
  const asked = withId(query.bytes, id);
  const answer = await (way === "udp" ? askByUdp : askByTcp)({
    asked,
    server,
    timeoutMs,
    signal,
    isIt: (bytes) => isAnswer(bytes, query, id),
  });
  return answer === undefined ? undefined : withId(answer, query.id);
}

interface Attempt {
  readonly asked: Uint8Array;
  readonly server: Ip;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly isIt: (bytes: Uint8Array) => boolean;
}

/**
 * The end of an attempt: by an answer, by a failure, by its timeout, or when its caller has gone.
 */
interface AttemptEnd {
  /** Only the first call counts. */
  end(this: void, answer?: Uint8Array): void;
  readonly isOver: () => boolean;
}

/** Ends an attempt once: closes its socket, and resolves with the answer, if there is one. */
function endOf(
  { timeoutMs, signal }: Attempt,
  close: () => void,
  resolve: (answer: Uint8Array | undefined) => void,
): AttemptEnd {
  let over = false;
  const end = (answer?: Uint8Array): void => {
    if (over) return;
    over = true;
    clearTimeout(timeout);
    signal?.removeEventListener("abort", aborted);
    close();
    resolve(answer);
  };
  const aborted = (): void => end();
  const timeout = setTimeout(guarded("dns", aborted), timeoutMs);
  signal?.addEventListener("abort", aborted);
  return { end, isOver: () => over };
}

const askByUdp = (attempt: Attempt): Promise<Uint8Array | undefined> =>
  new Promise((resolve) => {
    const { asked, server, isIt } = attempt;
    const socket = createSocket(familyOf(server) === 4 ? "udp4" : "udp6");
    const { end, isOver } = endOf(attempt, () => socket.close(), resolve);
    // The port has no listener, or the server is unreachable: known at once.
    socket.on("error", () => end());
    const take = (bytes: Uint8Array): void => {
      if (isIt(bytes)) end(bytes);
    };
    socket.on(
      "message",
      guarded("dns", take, () => end()),
    );
    // From then on the kernel drops datagrams of other senders. (Given to `connect`, it would be
    // called on failure as well.)
    const ask = (): void => {
      if (!isOver()) socket.send(asked, (thrown) => (thrown === null ? undefined : end()));
    };
    socket.once("connect", guarded("dns", ask, end));
    perform("socket", "ask a name server", () => socket.connect(dnsPort, server));
  });

const askByTcp = (attempt: Attempt): Promise<Uint8Array | undefined> =>
  new Promise((resolve) => {
    const { asked, server, isIt } = attempt;
    const socket = perform("socket", "ask a name server", () =>
      connect({ host: server, port: dnsPort, noDelay: true }),
    );
    const { end } = endOf(attempt, () => socket.destroy(), resolve);
    const stream = new MessageStream(0xffff);
    socket.on("error", () => end());
    socket.on("close", () => end());
    const drop = (): void => end();
    const take = (bytes: Uint8Array): void => {
      const found = stream.push(bytes).find(isIt);
      if (found !== undefined) end(found);
    };
    socket.on(
      "connect",
      guarded("dns", () => socket.write(framed(asked)), drop),
    );
    socket.on("data", guarded("dns", take, drop));
  });
