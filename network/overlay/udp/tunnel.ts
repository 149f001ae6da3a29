import { Worker } from "node:worker_threads";
import { type Cidr, type Ip, ipOf, ipToBytes, lengthOf } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import { guarded } from "../../../core/guard.ts";
import { type DatagramSocket, openDatagramSocket } from "../../../linux/sockets/datagram-socket.ts";
import { openWakeUp, type WakeUp } from "../../../linux/files/descriptor.ts";
import { openTun, type Tap } from "../../../linux/tun.ts";
import { type Counters, published, sharedCounters } from "./counters.ts";
import type { TunnelMessage, TunnelStart } from "./messages.ts";

/** The properties that cannot be changed while a tunnel is open. */
export interface TunnelBirth {
  /** The address of this host that the others send to. */
  readonly publicIp: Ip;
  /** UDP, here and at every peer. */
  readonly port: number;
  /**
   * The source address of ICMP errors to senders without a route: the overlay's first address,
   * which no host has. (flannel uses the tunnel's own address, but Linux drops packets that arrive
   * by a link from one of its own addresses.)
   */
  readonly answersFrom: Ip;
}

/** flannel's name for it: the first unused number. */
const devicePattern = "flannel%d";

/** Threads that wait in the kernel; the process would wait for them at its end. */
const open = new Set<UdpTunnel>();
let isWatchingExit = false;

/**
 * A tun whose packets go to the other hosts by UDP, each in a datagram of its own, and back:
 * flannel's udp backend. Its packets are moved by a thread of its own; this is the end on the main
 * one.
 */
export class UdpTunnel implements AsyncDisposable {
  readonly birth: TunnelBirth;
  readonly #tun: Tap;
  readonly #socket: DatagramSocket;
  readonly #wakeUp: WakeUp;
  readonly #worker: Worker;
  readonly #shared = sharedCounters();
  readonly #peers = new Map<Cidr, Ip>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #exited = Promise.withResolvers<void>();
  #reason: string | undefined;
  #closing: Promise<void> | undefined;

  /**
   * In the calling thread's network namespace. `onEnd` is called when it breaks, not when it is
   * closed. Throws `SYSCALL_FAILED`.
   */
  constructor(birth: TunnelBirth, onEnd: (reason: string) => void) {
    this.birth = birth;
    using opened = new DisposableStack();
    this.#socket = opened.use(openDatagramSocket(birth.publicIp, birth.port));
    this.#wakeUp = opened.use(openWakeUp());
    this.#tun = openTun(devicePattern);
    opened.move();
    const start: TunnelStart = {
      tun: this.#tun.fd,
      socket: this.#socket.fd,
      wakeUp: this.#wakeUp.fd,
      port: birth.port,
      answersFrom: numberOf(birth.answersFrom),
      shared: this.#shared,
    };
    const name = `tunnel ${this.device}`;
    this.#worker = new Worker(new URL("./worker.ts", import.meta.url), { workerData: start, name });
    this.#worker.once("message", () => this.#ready.resolve());
    this.#worker.on("error", (error) => {
      this.#reason = error instanceof Error ? error.message : "its thread failed";
    });
    const exited = (): void => {
      open.delete(this);
      this.#exited.resolve();
      this.#ready.resolve();
      if (this.#closing !== undefined) return;
      this.#reason ??= "its thread has ended";
      onEnd(this.#reason);
    };
    this.#worker.once("exit", guarded("overlay", exited));
    open.add(this);
    watchExit();
  }

  get device(): IfName {
    return this.#tun.name;
  }

  /**
   * Resolves once the tunnel forwards packets, or failed for good. Earlier packets wait in the
   * kernel.
   */
  get ready(): Promise<void> {
    return this.#ready.promise;
  }

  /** Why it moves no packets any more; undefined while it does. */
  get broken(): string | undefined {
    return this.#reason;
  }

  /** The host of each part of the overlay. */
  get peers(): ReadonlyMap<Cidr, Ip> {
    return this.#peers;
  }

  get counters(): Counters {
    return published(this.#shared);
  }

  /** Takes effect with the next packets. */
  setPeers(set: ReadonlyMap<Cidr, Ip>, remove: Iterable<Cidr> = []): void {
    const gone = [...remove];
    for (const subnet of gone) this.#peers.delete(subnet);
    for (const [subnet, host] of set) this.#peers.set(subnet, host);
    this.#send({
      set: [...set].map(([subnet, host]) => [
        numberOf(ipOf(subnet)),
        lengthOf(subnet),
        new Uint32Array(ipToBytes(host).slice().buffer)[0] as number,
      ]),
      remove: gone.map((subnet) => [numberOf(ipOf(subnet)), lengthOf(subnet)]),
    });
  }

  /** Ends the thread, then the device. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.stop();
    await this.#exited.promise;
    this.#socket[Symbol.dispose]();
    this.#wakeUp[Symbol.dispose]();
    await this.#tun.close();
  }

  /** Makes the thread end, without waiting for it. */
  stop(): void {
    this.#send("stop");
  }

  #send(message: TunnelMessage): void {
    if (!open.has(this)) return;
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
    this.#worker.postMessage(message);
    this.#wakeUp.wake();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const numberOf = (ip: Ip): number => new DataView(ipToBytes(ip).slice().buffer).getUint32(0);

function watchExit(): void {
  if (isWatchingExit) return;
  isWatchingExit = true;
  process.on("exit", () => {
    for (const tunnel of open) tunnel.stop();
  });
}
