import type { Socket } from "node:net";
import { abortable } from "../../core/aborting.ts";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Keyboard } from "../driver.ts";

/**
 * Most bytes on their way: QEMU takes what its guest's serial port has room for, a few at a time.
 */
const piece = 4096;
const typing = "Typing on the console";

/**
 * The writing side of a VM's console, for one writer at a time. A piece is written once QEMU has
 * taken the one before.
 */
export class Typing {
  #socket = Promise.withResolvers<Socket>();
  #holder: string | undefined;
  /**
   * The piece being written. A typist that disconnects leaves it to be finished, and the next one
   * queues behind it.
   */
  #last: Promise<void> = Promise.resolve();

  /** The console is connected, for the first time or again. */
  connected(socket: Socket): void {
    this.#socket.resolve(socket);
    socket.once("close", () => {
      this.#socket = Promise.withResolvers();
    });
  }

  /** Throws `WRONG_STATE` with the holder's name: the input of two typists would be mixed. */
  take(by: string): Keyboard {
    if (this.#holder !== undefined) {
      throw new PodnetError(
        "WRONG_STATE",
        `Another client types on this console: ${this.#holder}`,
        {
          hint: "Read along without typing: podnet console --no-stdin POD",
          details: { holder: this.#holder },
        },
      );
    }
    this.#holder = by;
    let held = true;
    return {
      type: async (data, signal) => {
        for (let at = 0; at < data.length; at += piece) {
          await this.#write(data.subarray(at, at + piece), signal);
        }
      },
      [Symbol.dispose]: () => {
        if (held) this.#holder = undefined;
        held = false;
      },
    };
  }

  async #write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    await abortable(this.#last, signal, typing);
    // One that is lost is connected again while QEMU runs; what was on its way is lost with it.
    const socket = await abortable(this.#socket.promise, signal, typing);
    const { promise, resolve } = Promise.withResolvers<void>();
    perform("channel", "console", () =>
      socket.write(bytes, (error) => {
        // A lost socket is replaced once it is closed, which takes another round of the loop.
        if (error === undefined || error === null || socket.closed) resolve();
        else socket.once("close", () => resolve());
      }),
    );
    this.#last = promise;
    await abortable(promise, signal, typing);
  }
}
