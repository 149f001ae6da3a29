import { connect, createServer, type Server, type Socket } from "node:net";
import { isIp, isLoopback, parseIp } from "../../core/address.ts";
import { perform, performAsync } from "../../core/effect.ts";
import { guarded } from "../../core/guard.ts";
import { resetConnection } from "../../linux/sockets/reset-connection.ts";
import type { HeldPort, PortAt, Served } from "./held-port.ts";

/**
 * Longest a pod may take to accept a connection, milliseconds: a running pod answers in a round
 * trip.
 */
const connectMs = 5000;
/**
 * From the last word of a quiet connection to the first question whether its ends are there still,
 * milliseconds.
 */
const quietMs = 60_000;

/**
 * Holds a TCP port with a listening socket, and forwards connections on loopback. A socket that is
 * only bound would not do: without SO_REUSEADDR it could not be bound while connections of an
 * earlier owner are in TIME_WAIT, and with it other programs could bind the port too. Throws what
 * `listen` throws.
 */
export async function holdTcp({ hostIp, hostPort }: PortAt, served: Served): Promise<HeldPort> {
  const take = (client: Socket): void => {
    client.on("error", () => {});
    if (isLocal(client)) forward(client, served);
    else {
      // A rule should have translated this connection. It is reset: forwarded, it would not show
      // the client's address to the pod.
      served.flows.refuse();
      resetConnection(client);
    }
  };
  const server = createServer(
    { allowHalfOpen: true, pauseOnConnect: true, noDelay: true },
    guarded("ports", take, resetConnection),
  );
  await performAsync("socket", "hold a TCP port", () => listening(server, hostIp, hostPort)).catch(
    (thrown: unknown) => {
      server.close();
      throw thrown;
    },
  );
  server.on("error", () => served.flows.refuse());
  return { close: () => void server.close() };
}

function listening(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port, ipv6Only: true, exclusive: true }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/**
 * Whether the connection was addressed to loopback. A connection that has ended already has no
 * address; a link-local address has its zone.
 */
const isLocal = ({ localAddress }: Socket): boolean =>
  localAddress !== undefined && isIp(localAddress) && isLoopback(parseIp(localAddress));

/**
 * Connects a client's connection to one of podnetd's own to the pod. FIN, RST and backpressure of
 * each end are passed on.
 */
function forward(client: Socket, { key, lead, flows }: Served): void {
  const { podIp: host, podPort: port } = lead;
  const ends = [client];
  const reset = (): void => {
    for (const each of ends) resetConnection(each);
  };
  const over = flows.begin(key, reset);
  if (over === undefined) {
    resetConnection(client);
    return;
  }
  let upstream: Socket;
  try {
    upstream = perform("socket", "connect to a pod", () =>
      connect({ host, port, allowHalfOpen: true, noDelay: true }),
    );
  } catch (thrown) {
    over();
    throw thrown;
  }
  ends.push(upstream);
  const timeout = setTimeout(
    guarded("ports", () => {
      flows.refuse();
      reset();
    }),
    connectMs,
  );
  timeout.unref();
  const join = (): void => {
    clearTimeout(timeout);
    for (const each of ends) each.setKeepAlive(true, quietMs);
    client.pipe(upstream);
    upstream.pipe(client);
  };
  upstream.once("connect", guarded("ports", join, reset));
  upstream.on("error", () => {
    if (upstream.connecting || upstream.bytesRead + upstream.bytesWritten === 0) flows.refuse();
  });
  let open = 2;
  const closed = (failed: boolean): void => {
    clearTimeout(timeout);
    if (failed) reset();
    if (--open > 0) return;
    flows.passedIn(upstream.bytesWritten);
    flows.passedOut(upstream.bytesRead);
    over();
  };
  client.once("close", guarded("ports", closed));
  upstream.once("close", guarded("ports", closed));
}
