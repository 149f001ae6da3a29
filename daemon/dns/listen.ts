import { createSocket, type RemoteInfo } from "node:dgram";
import type { EventEmitter } from "node:events";
import { closeSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { familyOf, type Ip } from "../../core/address.ts";
import { performAsync } from "../../core/effect.ts";
import { toPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { guard, guarded } from "../../core/guard.ts";
import { linkOfSocket, openDeviceSocket } from "../../linux/sockets/device-socket.ts";
import { resetConnection } from "../../linux/sockets/reset-connection.ts";
import { holdError } from "../published/hold-error.ts";
import { dnsPort, type Way } from "./ask-upstream.ts";
import { framed, MessageStream } from "./message-stream.ts";
import { longestQuery } from "./query.ts";
import type { Resolver } from "./resolver.ts";

/** A connection without a question ends after so long, milliseconds. */
const idleMs = 10_000;
/**
 * Bytes of answers that may wait for a guest to take them; more are lost, or end its connection.
 */
const mostWaiting = 1 << 20;
/**
 * Bytes that the kernel may hold of answers by UDP. It keeps some 200 KB of them for each guest
 * that does not answer ARP, until it gives up after three seconds: with the usual buffer of that
 * size one such guest would keep the answers of all others waiting.
 */
const sendBytes = 16 << 20;
/** Questions of one connection under way at a time; the next are read when one is answered. */
const mostAtOnce = 16;

/** Addresses of a network's resolver. */
interface ListenAt {
  readonly link: IfName;
  readonly addresses: readonly Ip[];
}

/** A resolver that can be asked. */
export interface Listening {
  /** Whether it still is: its link may have gone, and another one come. */
  isThere(): boolean;
  close(): void;
}

/** Lets a resolver be asked at an address of a link. Throws why it cannot. */
export type Listen = (at: ListenAt, resolver: Resolver) => Promise<Listening>;

/**
 * By UDP and TCP at each address, heard by one link alone. Throws `PORT_IN_USE`,
 * `PREFLIGHT_FAILED`, `SYSCALL_FAILED`.
 */
export const listenOnLink: Listen = async ({ link, addresses }, resolver) => {
  using opened = new DisposableStack();
  const fds: number[] = [];
  for (const address of addresses)
    for (const protocol of ["udp", "tcp"] as const) {
      const fd = openSocket(link, address, protocol);
      fds.push(fd);
      opened.adopt(await adopt(fd, address, protocol, resolver), (close) => close());
    }
  const held = opened.move();
  return {
    isThere: () => fds.every((fd) => linkOfSocket(fd) === link),
    close: () => held.dispose(),
  };
};

function openSocket(link: IfName, address: Ip, protocol: Way): number {
  try {
    const more = protocol === "udp" ? { sendBytes } : {};
    return openDeviceSocket({ protocol, link, address, port: dnsPort, ...more });
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const code = error.details["errno"];
    if (code !== "EADDRINUSE" && code !== "EACCES") throw error;
    throw holdError({ protocol, hostIp: address, hostPort: dnsPort }, { code, cause: thrown });
  }
}

/** Hands a bound socket to Node, which closes it from then on. */
async function adopt(
  fd: number,
  address: Ip,
  protocol: Way,
  resolver: Resolver,
): Promise<() => void> {
  const served = protocol === "udp" ? udpOf(address, resolver) : tcpOf(resolver);
  let taken = false;
  try {
    await performAsync("socket", `answer names by ${protocol.toUpperCase()}`, async () => {
      await served.take(fd);
      taken = true;
    });
    return () => served.close();
  } catch (thrown) {
    if (taken) served.close();
    else closeSync(fd);
    throw thrown;
  }
}

/** A socket of Node's that is yet to be given a descriptor. */
interface Server {
  take(fd: number): Promise<void>;
  close(): void;
}

/**
 * Resolves when it listens, rejects when it cannot. Later errors are found by the regular check.
 */
function listening(socket: EventEmitter, listen: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("error", reject);
    socket.once("listening", () => {
      socket.off("error", reject);
      socket.on("error", () => {});
      resolve();
    });
    listen();
  });
}

function udpOf(address: Ip, resolver: Resolver): Server {
  const socket = createSocket(familyOf(address) === 4 ? "udp4" : "udp6");
  let open = true;
  const take = async (bytes: Uint8Array, from: RemoteInfo): Promise<void> => {
    // An answer cannot be sent to port 0.
    if (from.port === 0) return resolver.refuse();
    const answer = await resolver.answer(bytes, from.address, "udp");
    if (answer === undefined || !open || socket.getSendQueueSize() > mostWaiting) return;
    socket.send(answer, from.port, from.address, () => {});
  };
  socket.on("message", guarded("dns", take));
  return {
    take: (fd) => listening(socket, () => socket.bind({ fd, exclusive: true })),
    close() {
      open = false;
      socket.close();
    },
  };
}

const end = (socket: Socket): void => void socket.destroy();

function tcpOf(resolver: Resolver): Server {
  const connections = new Set<Socket>();
  const take = (socket: Socket): void => {
    socket.on("error", () => {});
    const place = resolver.connection(socket.remoteAddress, () => resetConnection(socket));
    if (place === undefined) {
      resetConnection(socket);
      return;
    }
    connections.add(socket);
    socket.once("close", () => {
      connections.delete(socket);
      place[Symbol.dispose]();
    });
    converse(socket, resolver);
  };
  const server = createServer({ noDelay: true, allowHalfOpen: true }, guarded("dns", take, end));
  return {
    take: (fd) => listening(server, () => server.listen({ fd, exclusive: true })),
    close() {
      server.close();
      for (const each of connections) resetConnection(each);
    },
  };
}

/** Answers what comes by a connection, each question when its answer is there (RFC 7766). */
function converse(socket: Socket, resolver: Resolver): void {
  const stream = new MessageStream(longestQuery);
  let underWay = 0;
  let ended = false;
  const goOn = (): void => {
    if (socket.destroyed) return;
    if (underWay < mostAtOnce) socket.resume();
    if (ended && underWay === 0) socket.end();
  };
  socket.setTimeout(idleMs, () => socket.destroy());
  const drop = (): void => end(socket);
  const answer = async (message: Uint8Array): Promise<void> => {
    const said = await resolver.answer(message, socket.remoteAddress, "tcp");
    underWay--;
    if (socket.destroyed) return;
    if (said === undefined || socket.writableLength > mostWaiting) socket.destroy();
    else socket.write(framed(said));
    goOn();
  };
  const take = (bytes: Uint8Array): void => {
    for (const message of stream.push(bytes)) {
      underWay++;
      void guard("dns", () => answer(message), drop);
    }
    if (stream.tooLong) socket.destroy();
    else if (underWay >= mostAtOnce) socket.pause();
  };
  const endOfQuestions = (): void => {
    ended = true;
    goOn();
  };
  socket.on("data", guarded("dns", take, drop));
  socket.on("end", guarded("dns", endOfQuestions, drop));
}
