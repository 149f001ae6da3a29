import { closeSync } from "node:fs";
import type { Ip, IpPrefix } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { IfName } from "../../../core/names.ts";
import { inNamespace, ownNetns, withNewNetns } from "../../../linux/namespaces/netns.ts";
import { Rtnetlink } from "../../../linux/netlink/rtnetlink-socket.ts";
import { EchoSocket } from "../../../linux/sockets/echo-socket.ts";
import type { Tap } from "../../../linux/tun.ts";

/**
 * A network that leads nowhere, with podnetd alone in it: there a guest is asked what others will
 * ask it, and nothing it sends reaches the host.
 */
export interface RehearsalRoom extends Disposable {
  /** Makes something, a tap, whose place is in the room. */
  within(make: () => Tap): Tap;
  /**
   * Asks the guest at a tap twice for an echo, and waits for its answers, for a moment only: a
   * guest need not answer. `self` is the address of this side.
   */
  visit(tap: IfName, self: IpPrefix, guest: Ip): Promise<void>;
  /** Moves a tap out to podnetd's own network, where it is down and has no address. */
  release(tap: IfName): Promise<void>;
}

/** Milliseconds. A guest on a quiet host takes 3, and 50 where its code is not translated. */
const usualAnswerMs = 500;

/**
 * Opens a network namespace, which ends with the last machine whose tap was made in it. `answerMs`
 * is the longest wait for an answer. Throws `SYSCALL_FAILED`; `details.errno` is `EPERM` without
 * CAP_SYS_ADMIN.
 */
export function openRehearsalRoom(answerMs: number = usualAnswerMs): RehearsalRoom {
  return withNewNetns(() => new Room(answerMs));
}

class Room implements RehearsalRoom {
  readonly #netlink = Rtnetlink.open();
  readonly #answerMs: number;
  readonly #namespace: number;
  #isClosed = false;

  /** In the namespace of the calling thread. */
  constructor(answerMs: number) {
    this.#answerMs = answerMs;
    try {
      this.#namespace = ownNetns();
    } catch (thrown) {
      this.#netlink.close();
      throw thrown;
    }
  }

  within(make: () => Tap): Tap {
    return this.#inside(make);
  }

  async visit(tap: IfName, self: IpPrefix, guest: Ip): Promise<void> {
    await this.#netlink.changeLink(tap, { up: true });
    const index = (await this.#netlink.link(tap))?.index;
    if (index === undefined) return;
    await this.#netlink.addAddress(index, self);
    using socket = this.#openEcho();
    if (socket === undefined) return;
    // The second finds the neighbour known.
    for (let asked = 0; asked < 2; asked++)
      if ((await socket.ask(guest, { timeoutMs: this.#answerMs })).kind !== "answered") return;
  }

  async release(tap: IfName): Promise<void> {
    const home = ownNetns();
    try {
      await this.#netlink.changeLink(tap, { netnsFd: home });
    } finally {
      closeSync(home);
    }
  }

  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#netlink.close();
    closeSync(this.#namespace);
  }

  /** Undefined without CAP_NET_RAW, which podnetd can do without. */
  #openEcho(): EchoSocket | undefined {
    try {
      return this.#inside(() => new EchoSocket(4));
    } catch (thrown) {
      if (isPodnetError(thrown, "SYSCALL_FAILED") && thrown.details["errno"] === "EPERM")
        return undefined;
      throw thrown;
    }
  }

  #inside<T>(body: () => T extends PromiseLike<unknown> ? never : T): T {
    return inNamespace(this.#namespace, "Cannot enter the rehearsals' network", body);
  }
}
