import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import { connectUnix, type UnixConnection } from "../../linux/sockets/unix-socket.ts";
import { type VmPlan, vmSockets } from "../driver.ts";
import { QmpClient } from "../qmp/client.ts";
import type { QmpEvent } from "../qmp/commands.ts";
import { whenThere } from "../process/connect.ts";
import { type ConsoleRing, drainConsole } from "../console/console.ts";
import type { Log } from "../process/log.ts";
import type { Typing } from "../console/typing.ts";

export interface ConnectionsOptions {
  readonly plan: VmPlan;
  /** The console's output, and what is typed on it. */
  readonly ring: ConsoleRing;
  readonly typing: Typing;
  /** Whether QEMU runs, as far as is known: connections to an ended QEMU are not retried. */
  readonly runs: () => boolean;
  readonly onEvent: (event: QmpEvent) => void;
  readonly onOverwritten: (bytes: number) => void;
  /** The session is over, with or without QEMU: see `openQmpAgain`. */
  readonly onSessionLost: (reason: PodnetError) => void;
  readonly log: Log;
}

/** podnetd's connections to a QEMU: its console, and one QMP session at a time. */
export class Connections {
  readonly #options: ConnectionsOptions;
  /** Aborted on close: it ends connection attempts that have no other waiter. */
  readonly #closed = new AbortController();
  #qmp: QmpClient | undefined;
  #console: UnixConnection | undefined;
  /** Who listened at the socket of a foreign machine. */
  #listener: number | undefined;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /** The session to use now; undefined before the first. */
  get qmp(): QmpClient | undefined {
    return this.#qmp;
  }

  get closed(): boolean {
    return this.#closed.signal.aborted;
  }

  /** Connects both to a QEMU that opens its sockets within `withinMs`. */
  async open(withinMs: number, signal: AbortSignal): Promise<void> {
    await this.#openConsole(withinMs, signal);
    await this.#openQmp(withinMs, signal);
  }

  /** Adopts a session that another part has opened; there is no console. */
  adopt(qmp: QmpClient): void {
    if (this.#options.plan.attached !== undefined) this.#listener = qmp.peer.pid;
    this.#qmp = qmp;
    qmp.onEvent(this.#options.onEvent);
    qmp.onClose(this.#options.onSessionLost);
  }

  /** Opens the next session after a lost one, and then calls `opened`. */
  openQmpAgain(opened: (signal: AbortSignal) => Promise<void>): void {
    this.#again("QMP", async () => {
      const { signal } = this.#closed;
      await this.#openQmp(0, signal);
      await opened(signal);
    });
  }

  close(): void {
    this.#closed.abort();
    this.#qmp?.close();
    this.#console?.close();
  }

  async #openConsole(withinMs: number, signal: AbortSignal): Promise<void> {
    const { plan, ring, typing, onOverwritten } = this.#options;
    const path = join(plan.runDir, vmSockets.console);
    const connection = await whenThere(() => connectUnix(path, signal), withinMs, signal);
    if (this.closed) return connection.close();
    this.#console = connection;
    typing.connected(connection.socket);
    drainConsole(connection, ring, {
      overwritten: onOverwritten,
      onEnd: () => this.#again("console", () => this.#openConsole(0, this.#closed.signal)),
    });
  }

  async #openQmp(withinMs: number, signal: AbortSignal): Promise<void> {
    const { attached, runDir } = this.#options.plan;
    const path = attached?.qmp ?? join(runDir, vmSockets.qmp);
    const qmp = await whenThere(() => QmpClient.open(path, { signal }), withinMs, signal);
    if (this.closed) return qmp.close();
    this.#refuseAnother(qmp);
    this.adopt(qmp);
  }

  /** The socket of a foreign machine may be given to another one while the first still runs. */
  #refuseAnother(qmp: QmpClient): void {
    const before = this.#listener;
    if (before === undefined || qmp.peer.pid === before) return;
    qmp.close();
    throw new PodnetError("QMP_PROTOCOL", "Another machine has the QMP socket now");
  }

  /** Tries to connect again, ever less often, as long as QEMU runs. */
  #again(what: string, connect: () => Promise<void>): void {
    const { log, runs } = this.#options;
    const attempt = async (waitMs: number): Promise<void> => {
      await delay(waitMs, undefined, { ref: false });
      if (this.closed || !runs()) return;
      try {
        await connect();
        log("info", `Connected to QEMU's ${what} again`, {});
      } catch (error) {
        const { message } = toPodnetError(error);
        log("warn", `Cannot connect to QEMU's ${what}`, { reason: message });
        await attempt(Math.min(waitMs * 2, 5000));
      }
    };
    if (!this.closed) void guard("qemu", () => attempt(50));
  }
}
