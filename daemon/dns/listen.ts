import { createSocket } from "node:dgram";
import type { EventEmitter } from "node:events";
import { closeSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { familyOf, type Ip } from "../../core/address.ts";
import { crossAsync } from "../../core/crossing.ts";
import { toPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { linkOfSocket, openDeviceSocket } from "../../linux/device-socket.ts";
import { holdError } from "../ports/hold-error.ts";
import { dnsPort, type Way } from "./ask-upstream.ts";
import { framed, MessageStream } from "./message-stream.ts";
import { longestQuery } from "./query.ts";
import type { Resolver } from "./resolver.ts";

/** A connection without a question ends after so long, milliseconds. */
const idleMs = 10_000;
/** Bytes of answers that may wait for a guest to take them; more are lost, or end its connection. */
const mostWaiting = 1 << 20;
/** Questions of one connection under way at a time; the next are read when one is answered. */
const mostAtOnce = 16;

/** Where a network's resolver is to be asked. */
export interface ListenAt {
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

/** By UDP and TCP at each address, heard by one link alone. Throws `PORT_IN_USE`, `PREFLIGHT_FAILED`, `SYSCALL_FAILED`. */
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
    return openDeviceSocket({ protocol, link, address, port: dnsPort });
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
    await crossAsync("socket", `answer names by ${protocol.toUpperCase()}`, async () => {
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

/** Resolves when it listens, rejects when it cannot. What is wrong later is seen when it is looked after. */
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
  socket.on("message", (bytes, from) => {
    void resolver.answer(bytes, from.address, "udp").then((answer) => {
      if (answer === undefined || !open || socket.getSendQueueSize() > mostWaiting) return;
      socket.send(answer, from.port, from.address, () => {});
    });
  });
  return {
    take: (fd) => listening(socket, () => socket.bind({ fd, exclusive: true })),
    close() {
      open = false;
      socket.close();
    },
  };
}

function tcpOf(resolver: Resolver): Server {
  const connections = new Set<Socket>();
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    const place = resolver.connection(socket.remoteAddress);
    if (place === undefined) {
      socket.resetAndDestroy();
      return;
    }
    connections.add(socket);
    socket.once("close", () => {
      connections.delete(socket);
      place[Symbol.dispose]();
    });
    converse(socket, resolver);
  });
  return {
    take: (fd) => listening(server, () => server.listen({ fd, exclusive: true })),
    close() {
      server.close();
      for (const each of connections) each.resetAndDestroy();
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
  socket.on("error", () => {});
  socket.on("data", (bytes) => {
    for (const message of stream.push(bytes)) {
      underWay++;
      void resolver.answer(message, socket.remoteAddress, "tcp").then((answer) => {
        underWay--;
        if (socket.destroyed) return;
        if (answer === undefined || socket.writableLength > mostWaiting) socket.destroy();
        else socket.write(framed(answer));
        goOn();
      });
    }
    if (stream.tooLong) socket.destroy();
    else if (underWay >= mostAtOnce) socket.pause();
  });
  socket.on("end", () => {
    ended = true;
    goOn();
  });
}
