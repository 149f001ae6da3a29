import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { familyOf, type Ip, isLoopback } from "../../core/address.ts";
import { perform, performAsync } from "../../core/effect.ts";
import { guarded } from "../../core/guard.ts";
import type { HeldPort, PortAt, Served } from "./held-port.ts";

/**
 * A session without a datagram ends after so long, milliseconds: the kernel's own time for a UDP
 * flow that was answered.
 */
const quietMs = 120_000;
/**
 * Most bytes that may wait in a socket to be sent; datagrams beyond are lost, as on any network.
 */
const mostWaiting = 1 << 20;

/**
 * Datagrams that may wait for a session to begin, which takes no more than a turn of the event
 * loop.
 */
const mostFirst = 64;

/** A client's own socket to the pod. */
interface Session {
  pass(datagram: Uint8Array): void;
}

const newSocket = (ip: Ip): Socket =>
  createSocket({ type: familyOf(ip) === 4 ? "udp4" : "udp6", ipv6Only: familyOf(ip) === 6 });

/**
 * Holds a UDP port, and forwards datagrams on loopback: one session for each client. Throws what
 * `bind` throws.
 */
export async function holdUdp({ hostIp, hostPort }: PortAt, served: Served): Promise<HeldPort> {
  const socket = newSocket(hostIp);
  const sessions = new Map<string, Session>();
  await performAsync("socket", "hold a UDP port", () => bound(socket, hostIp, hostPort)).catch(
    (thrown: unknown) => {
      socket.close();
      throw thrown;
    },
  );
  socket.on("error", () => served.flows.refuse());
  const take = (datagram: Uint8Array, from: RemoteInfo): void => {
    // Rules translate datagrams from other addresses; without the rules these are dropped. A client
    // at port 0 cannot be answered.
    if (!isLoopback(from.address as Ip) || from.port === 0) {
      served.flows.refuse();
      return;
    }
    const client = `${from.address} ${from.port}`;
    const forget = (): void => void sessions.delete(client);
    const session = sessions.get(client) ?? begin(from, socket, served, forget);
    if (session === undefined) return;
    sessions.set(client, session);
    session.pass(datagram);
  };
  socket.on("message", guarded("ports", take));
  return { close: () => void socket.close() };
}

function bound(socket: Socket, address: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.bind({ address, port, exclusive: true }, () => {
      socket.off("error", reject);
      resolve();
    });
  });
}

/** Undefined when the pod has too many sessions already. */
function begin(
  client: RemoteInfo,
  socket: Socket,
  { key, lead, flows }: Served,
  forget: () => void,
): Session | undefined {
  const pod = newSocket(lead.podIp);
  let ended = false;
  const end = (): void => {
    if (ended) return;
    ended = true;
    clearTimeout(quiet);
    forget();
    over?.();
    pod.close();
  };
  const over = flows.begin(key, end);
  const quiet = setTimeout(guarded("ports", end), quietMs);
  quiet.unref();
  if (over === undefined) {
    end();
    return undefined;
  }
  // The kernel reports that no socket in the pod has the port; a UDP client cannot be sent that.
  pod.on("error", () => {
    flows.refuse();
    end();
  });
  const answered = (datagram: Uint8Array): void => {
    quiet.refresh();
    if (socket.getSendQueueSize() > mostWaiting) flows.refuse();
    else {
      flows.passedOut(datagram.length);
      // The port may have been released meanwhile.
      if (!ended) socket.send(datagram, client.port, client.address, () => {});
    }
  };
  pod.on("message", guarded("ports", answered, end));
  let waiting: Uint8Array[] | undefined = [];
  const send = (datagram: Uint8Array): void => {
    if (pod.getSendQueueSize() > mostWaiting) {
      flows.refuse();
      return;
    }
    flows.passedIn(datagram.length);
    pod.send(datagram, (thrown) => {
      if (thrown === null) return;
      flows.refuse();
      end();
    });
  };
  // (Given to `connect`, it would be called as well where there is no way to the pod, and what it
  // sends would throw.)
  const sendFirst = (): void => {
    const first = waiting ?? [];
    waiting = undefined;
    for (const datagram of first) if (!ended) send(datagram);
  };
  pod.once("connect", guarded("ports", sendFirst, end));
  try {
    perform("socket", "begin a UDP session with a pod", () =>
      pod.connect(lead.podPort, lead.podIp),
    );
  } catch (thrown) {
    end();
    throw thrown;
  }
  return {
    pass(datagram) {
      quiet.refresh();
      if (waiting === undefined) send(datagram);
      else if (waiting.length < mostFirst) waiting.push(datagram);
      else flows.refuse();
    },
  };
}
