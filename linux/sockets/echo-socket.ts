import { closeSync } from "node:fs";
import { type Family, familyOf, type Ip } from "../../core/address.ts";
import { perform } from "../../core/effect.ts";
import { guarded } from "../../core/guard.ts";
import { addressOf, lastErrno, recvmsg, sendmsg, setsockopt, socket } from "../ffi/libc.ts";
import { type Poll, pollFd } from "../ffi/poll.ts";
import { echoOverhead, echoRequest, type IcmpMessage, parseIcmp } from "./icmp.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import {
  AF_INET,
  AF_INET6,
  ipOfSocketAddress,
  socketAddress,
  socketAddressSize,
} from "./socket-address.ts";
import { setIntOption } from "./socket-option.ts";
import { checked } from "../syscall-error.ts";

// include/linux/net.h, include/uapi/linux/in.h, in6.h, icmp.h, icmpv6.h (Linux 6.1)
const SOCK_RAW = 3;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const IPPROTO_IP = 0;
const IP_MTU_DISCOVER = 10;
const IPPROTO_IPV6 = 41;
const IPV6_MTU_DISCOVER = 23;
const PMTUDISC_PROBE = 3;
const MSG_DONTWAIT = 0x40;

/** Of each family: its raw socket, and a filter whose set bits are the types that are not taken. */
const families = {
  4: { domain: AF_INET, protocol: 1, filter: [255, 1], bytes: 4, taken: [0, 3] },
  6: { domain: AF_INET6, protocol: 58, filter: [58, 1], bytes: 32, taken: [1, 2, 129] },
} as const;

const longestPacket = 65_535;
const packetsPerTurn = 64;

/** The outcome of an echo request. */
export type EchoAnswer =
  | { readonly kind: "answered"; readonly rttMs: number }
  /** No answer came in time. */
  | { readonly kind: "silent" }
  /**
   * It is too long for a link on the way, or for the host's own; `mtu` is 0 when no router reported
   * what would fit.
   */
  | { readonly kind: "too-big"; readonly mtu: number }
  /** The host `from` reports that it has no route to the destination. */
  | { readonly kind: "unreachable"; readonly from: Ip; readonly rttMs: number }
  /** It could not be sent: there is no route, or a rule forbids it. */
  | { readonly kind: "unsent"; readonly errno: string };

export interface EchoOptions {
  /**
   * Of the whole packet, headers included; the least that is possible unless given. It is never
   * fragmented on the way.
   */
  readonly bytes?: number;
  readonly timeoutMs: number;
}

interface Waiting {
  readonly address: Ip;
  readonly sentAt: number;
  readonly finish: (answer: EchoAnswer) => void;
}

/** Distinguishes our own requests from those of every other process. */
const tokenSize = 8;

/**
 * Asks hosts of one family whether they are there, any number at once, in the network namespace the
 * calling thread is in at birth. Takes CAP_NET_RAW.
 */
export class EchoSocket implements Disposable {
  readonly #family: Family;
  readonly #fd: number;
  readonly #poll: Poll;
  readonly #id = Math.floor(Math.random() * 0x1_0000);
  readonly #token = crypto.getRandomValues(new Uint8Array(tokenSize));
  readonly #waiting = new Map<number, Waiting>();
  readonly #received = new Uint8Array(longestPacket);
  readonly #sender = new Uint8Array(socketAddressSize);
  #sequence = 0;
  #closed = false;

  /**
   * Throws `SYSCALL_FAILED`; `details.errno` is `EPERM` without CAP_NET_RAW, `EAFNOSUPPORT` without
   * IPv6.
   */
  constructor(family: Family) {
    this.#family = family;
    const what = `Cannot ask hosts of IPv${family} whether they are there`;
    const { domain, protocol } = families[family];
    this.#fd = checked(
      socket(domain, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol),
      "socket",
      what,
    );
    try {
      perform("socket", "open echo socket", () => this.#setUp(what));
      this.#poll = pollFd(
        this.#fd,
        "readable",
        guarded("overlay", () => this.#read()),
      );
      this.#poll.unref();
    } catch (error) {
      closeSync(this.#fd);
      throw error;
    }
  }

  #setUp(what: string): void {
    const { filter, bytes, taken } = families[this.#family];
    const blocked = new Uint8Array(bytes).fill(0xff);
    for (const type of taken)
      blocked[type >> 3] = (blocked[type >> 3] as number) & ~(1 << (type & 7));
    const [level, name] = filter;
    checked(setsockopt(this.#fd, level, name, blocked, blocked.length), "setsockopt", what);
    // Never in pieces, and of the size that is asked for, whatever has been learnt of the way
    // before.
    const [ip, discover] =
      this.#family === 4 ? [IPPROTO_IP, IP_MTU_DISCOVER] : [IPPROTO_IPV6, IPV6_MTU_DISCOVER];
    checked(setIntOption(this.#fd, ip, discover, PMTUDISC_PROBE), "setsockopt", what);
  }

  /** Sends one request and waits for what becomes of it; while it waits the process stays alive. */
  ask(address: Ip, { bytes = 0, timeoutMs }: EchoOptions): Promise<EchoAnswer> {
    if (this.#closed || familyOf(address) !== this.#family)
      return Promise.resolve({ kind: "unsent", errno: this.#closed ? "EBADF" : "EAFNOSUPPORT" });
    const sequence = this.#freeSequence();
    if (sequence === undefined) return Promise.resolve({ kind: "unsent", errno: "EAGAIN" });
    const payload = new Uint8Array(Math.max(tokenSize, bytes - echoOverhead[this.#family]));
    payload.set(this.#token);
    return new Promise<EchoAnswer>((resolve, reject) => {
      const timer = setTimeout(
        guarded("overlay", () => finish({ kind: "silent" })),
        timeoutMs,
      );
      const finish = (answer: EchoAnswer): void => {
        clearTimeout(timer);
        this.#waiting.delete(sequence);
        resolve(answer);
      };
      this.#waiting.set(sequence, { address, sentAt: performance.now(), finish });
      let errno: string | undefined;
      try {
        const request = echoRequest(this.#family, { id: this.#id, sequence }, payload);
        errno = this.#send(address, request);
      } catch (error) {
        reject(error);
        finish({ kind: "silent" });
        return;
      }
      if (errno === "EMSGSIZE") finish({ kind: "too-big", mtu: 0 });
      else if (errno !== undefined) finish({ kind: "unsent", errno });
    });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#poll.close();
    closeSync(this.#fd);
    for (const { finish } of this.#waiting.values()) finish({ kind: "silent" });
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #freeSequence(): number | undefined {
    for (let tries = 0; tries < 0x1_0000; tries++) {
      this.#sequence = (this.#sequence + 1) & 0xffff;
      if (!this.#waiting.has(this.#sequence)) return this.#sequence;
    }
    return undefined;
  }

  /** The error's name when it was not sent. */
  #send(address: Ip, message: Uint8Array): string | undefined {
    const to = socketAddress(address, 0);
    const header = messageHeader(to, message);
    const sent = perform("socket", "send echo request", () =>
      sendmsg(this.#fd, header.bytes, MSG_DONTWAIT),
    );
    return sent < 0 ? errnoName(lastErrno()) : undefined;
  }

  #read(): void {
    for (let i = 0; i < packetsPerTurn && !this.#closed; i++) {
      const header = messageHeader(this.#sender, this.#received);
      const length = recvmsg(this.#fd, header.bytes, MSG_DONTWAIT);
      if (length < 0) {
        if (errnoName(lastErrno()) === "EAGAIN") return;
        // An error of the socket may concern one request: continue for the others.
        continue;
      }
      const sender = ipOfSocketAddress(this.#sender);
      const message = parseIcmp(this.#family, this.#received.subarray(0, length), sender);
      if (message !== undefined) this.#take(message);
    }
  }

  #take(message: IcmpMessage): void {
    const waiting = this.#waiting.get(message.sequence);
    if (waiting === undefined || message.id !== this.#id) return;
    if (message.kind === "too-big") {
      if (message.to === waiting.address) waiting.finish({ kind: "too-big", mtu: message.mtu });
      return;
    }
    if (message.kind === "unreachable") {
      const rttMs = performance.now() - waiting.sentAt;
      if (message.to === waiting.address)
        waiting.finish({ kind: "unreachable", from: message.from, rttMs });
      return;
    }
    const isOurs = this.#token.every((byte, i) => message.payload[i] === byte);
    if (isOurs && message.from === waiting.address)
      waiting.finish({ kind: "answered", rttMs: performance.now() - waiting.sentAt });
  }
}

/**
 * struct msghdr { name, namelen, iov, iovlen, control, controllen, flags } and its struct iovec;
 * both live as long as the header.
 */
function messageHeader(
  address: Uint8Array,
  message: Uint8Array,
): { readonly bytes: Uint8Array; readonly vector: Uint8Array } {
  const vector = new Uint8Array(16);
  const iovec = new DataView(vector.buffer);
  iovec.setBigUint64(0, addressOf(message), true);
  iovec.setBigUint64(8, BigInt(message.length), true);
  const bytes = new Uint8Array(56);
  const msghdr = new DataView(bytes.buffer);
  msghdr.setBigUint64(0, addressOf(address), true);
  msghdr.setUint32(8, address.length, true);
  msghdr.setBigUint64(16, addressOf(vector), true);
  msghdr.setBigUint64(24, 1n, true);
  return { bytes, vector };
}
