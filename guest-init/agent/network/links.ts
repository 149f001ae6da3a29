import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { LinkState } from "../../../linux/rtnetlink/links/link.ts";
import { rescanPci } from "../boot.ts";
import { netlinkSocket } from "../devices.ts";
import { type Loop, readable } from "../loop.ts";
import type { Netlink } from "./netlink.ts";
import { pollEvent, sys } from "../sys.ts";

const netlinkRoute = 0;
/** RTMGRP_LINK. */
const linkGroup = 1;
/** How long hyperstart waits for a device it is notified of, milliseconds. */
const deviceWaitMs = 2000;
/**
 * Delay between a change of a link and the scan that has no waiter, milliseconds: a new NIC causes
 * several changes.
 */
const quietMs = 200;

interface Waiting {
  /** Looks once more. */
  look(): void;
  /** Waits no longer. */
  giveUp(): void;
}

/**
 * Finds links, and waits for those that are not there yet: a NIC may be configured before it is
 * plugged.
 */
export class Links {
  readonly netlink: Netlink;
  readonly #loop: Loop;
  readonly #mayRescan: boolean;
  readonly #waiting = new Set<Waiting>();
  #afterChanges: (() => void) | undefined;
  #scanDue = false;
  #fd = -1;

  /** `mayRescan`: the PCI bus is the guest's own. */
  constructor(loop: Loop, netlink: Netlink, mayRescan: boolean) {
    this.#loop = loop;
    this.netlink = netlink;
    this.#mayRescan = mayRescan;
  }

  /** The link with this name, waited for as hyperstart does: 2 s, after asking the PCI bus. */
  async named(name: string): Promise<LinkState> {
    const find = (): LinkState | undefined => this.netlink.link(name);
    const link = find() ?? (await this.#afterRescan(find));
    if (link !== undefined) return link;
    throw new PodnetError("INVALID_ARGUMENT", `There is no interface "${printable(name)}"`, {
      field: "device",
    });
  }

  /**
   * All links, as soon as `isComplete` says that they are; as they are after `waitMs` milliseconds
   * otherwise.
   */
  async when(
    isComplete: (links: readonly LinkState[]) => boolean,
    waitMs: number,
  ): Promise<readonly LinkState[]> {
    let links: readonly LinkState[] = [];
    const complete = (): true | undefined => {
      links = this.netlink.links();
      return isComplete(links) ? true : undefined;
    };
    await this.until(complete, waitMs);
    return links;
  }

  /**
   * Calls `find` now and at every change of a link, until it finds something; undefined after
   * `waitMs` milliseconds.
   */
  until<T>(find: () => T | undefined, waitMs: number): Promise<T | undefined> {
    // Before the first look, or what comes between the two would be missed.
    this.#listen();
    const found = find();
    if (found !== undefined || waitMs <= 0) return Promise.resolve(found);
    return new Promise((resolve, reject) => {
      const finish = (end: () => void): void => {
        this.#waiting.delete(waiting);
        cancel();
        end();
      };
      const waiting: Waiting = {
        look: () => {
          try {
            const result = find();
            if (result !== undefined) finish(() => resolve(result));
          } catch (thrown) {
            finish(() => reject(thrown));
          }
        },
        giveUp: () => finish(() => resolve(undefined)),
      };
      const cancel = this.#loop.after(waitMs, () => waiting.giveUp());
      this.#waiting.add(waiting);
    });
  }

  /** Calls `look` a moment after links have changed, for good; a later one takes its place. */
  afterChanges(look: () => void): void {
    this.#afterChanges = look;
    this.#listen();
  }

  /** Ends all waits: the host that asked has gone, and the next host must not queue behind them. */
  giveUp(): void {
    for (const waiting of this.#waiting) waiting.giveUp();
  }

  #afterRescan(find: () => LinkState | undefined): Promise<LinkState | undefined> {
    if (this.#mayRescan) rescanPci();
    return this.until(find, deviceWaitMs);
  }

  #listen(): void {
    if (this.#fd >= 0) return;
    this.#fd = netlinkSocket(netlinkRoute, linkGroup);
    const buffer = new Uint8Array(32768);
    this.#loop.watch(this.#fd, pollEvent.in, (events) => {
      if (!readable(events)) return;
      // The content of the events is not read: each waiter scans for itself. ENOBUFS, lost events,
      // is handled alike.
      try {
        while (sys.receiveAll(this.#fd, buffer) !== undefined);
      } catch {}
      for (const waiting of this.#waiting) waiting.look();
      this.#scanLater();
    });
  }

  #scanLater(): void {
    if (this.#scanDue || this.#afterChanges === undefined) return;
    this.#scanDue = true;
    this.#loop.after(quietMs, () => {
      this.#scanDue = false;
      this.#afterChanges?.();
    });
  }
}
