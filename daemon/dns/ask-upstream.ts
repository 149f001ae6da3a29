import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { familyOf, type Ip } from "../../core/address.ts";
import { cross } from "../../core/crossing.ts";
import { framed, MessageStream } from "./message-stream.ts";
import { isAnswer, type Query, withId } from "./query.ts";

/** Where servers listen, and podnet's resolver. */
export const dnsPort = 53;

/** How a query came, and goes on. */
export type Way = "udp" | "tcp";

/**
 * Asks a server and answers what it says, with the id of the query. By a socket of its own, whose port the kernel draws,
 * and with an id that nobody can know: what answers neither is not heard. Undefined when nothing comes in time.
 */
export async function askUpstream(
  query: Query,
  server: Ip,
  way: Way,
  patienceMs: number,
): Promise<Uint8Array | undefined> {
  const id = randomInt(0x1_0000);
  const asked = withId(query.bytes, id);
  const answer = await (way === "udp" ? askByUdp : askByTcp)(asked, server, patienceMs, (bytes) =>
    isAnswer(bytes, query, id),
  );
  return answer === undefined ? undefined : withId(answer, query.id);
}

type Ask = (
  asked: Uint8Array,
  server: Ip,
  patienceMs: number,
  isIt: (bytes: Uint8Array) => boolean,
) => Promise<Uint8Array | undefined>;

const askByUdp: Ask = (asked, server, patienceMs, isIt) =>
  new Promise((resolve) => {
    const socket = createSocket(familyOf(server) === 4 ? "udp4" : "udp6");
    let over = false;
    const end = (answer?: Uint8Array): void => {
      if (over) return;
      over = true;
      clearTimeout(patience);
      socket.close();
      resolve(answer);
    };
    const patience = setTimeout(end, patienceMs);
    // Nobody listens there, or there is no way: known at once.
    socket.on("error", () => end());
    socket.on("message", (bytes) => {
      if (isIt(bytes)) end(bytes);
    });
    // From then on the kernel lets nobody else's datagrams in. (Given to `connect`, it would be called on failure as well.)
    socket.once("connect", () => {
      if (!over) socket.send(asked, (thrown) => (thrown === null ? undefined : end()));
    });
    cross("socket", "ask a name server", () => socket.connect(dnsPort, server));
  });

const askByTcp: Ask = (asked, server, patienceMs, isIt) =>
  new Promise((resolve) => {
    const socket = cross("socket", "ask a name server", () =>
      connect({ host: server, port: dnsPort, noDelay: true }),
    );
    const end = (answer?: Uint8Array): void => {
      clearTimeout(patience);
      socket.destroy();
      resolve(answer);
    };
    const patience = setTimeout(end, patienceMs);
    const stream = new MessageStream(0xffff);
    socket.on("error", () => end());
    socket.on("close", () => end());
    socket.on("connect", () => socket.write(framed(asked)));
    socket.on("data", (bytes) => {
      const found = stream.push(bytes).find(isIt);
      if (found !== undefined) end(found);
    });
  });
