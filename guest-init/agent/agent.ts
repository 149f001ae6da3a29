import { command, portNames } from "../protocol/codes.ts";
import { encodeVersion } from "../protocol/replies.ts";
import { findPort, onlineAll, rescanPci } from "./boot.ts";
import { Control } from "./control.ts";
import { watchDevices } from "./devices.ts";
import { type Loop, readable } from "./loop.ts";
import type { Options } from "./options.ts";
import { endMachine } from "./power.ts";
import { Processes } from "./processes.ts";
import { type Handler, done } from "./reply.ts";
import { Streams } from "./streams.ts";
import { pollEvent, sys } from "./sys.ts";

const signals = { interrupt: 2, user1: 10, user2: 12, terminate: 15, child: 17 } as const;

/** Everything the agent is made of, and which command leads where. */
export class Agent {
  readonly #loop: Loop;
  readonly #options: Options;
  readonly #control: Control;
  readonly #streams: Streams;
  readonly #processes: Processes;

  constructor(loop: Loop, options: Options) {
    this.#loop = loop;
    this.#options = options;
    this.#processes = new Processes(
      loop,
      () => this.#streams,
      (code, payload) => this.#control.tell(code, payload),
    );
    this.#streams = new Streams(loop, () => findPort(options.tty), {
      input: (stream, data) => this.#processes.input(stream, data),
      drained: () => this.#processes.resume(),
    });
    this.#control = new Control(
      loop,
      () => findPort(options.channel),
      this.#handlers(),
      () => this.#streams.open(),
    );
  }

  /** Looks for the channels, and opens them as soon as they are there. */
  open(): void {
    this.#watchSignals();
    const stop = watchDevices(this.#loop, () => {
      if (this.#control.open() && this.#streams.open()) stop();
    });
  }

  #handlers(): ReadonlyMap<number, Handler> {
    return new Map<number, Handler>([
      [command.ping, () => done],
      [command.getVersion, () => ({ payload: encodeVersion() })],
      [command.ready, () => this.#rescan()],
      [command.execCmd, (payload) => this.#processes.exec(payload)],
      [command.signalProcess, (payload) => this.#processes.signal(payload)],
      [command.winSize, (payload) => this.#processes.resize(payload)],
      [command.onlineCpuMem, () => ({ after: () => this.#inGuest(onlineAll) })],
      [command.destroyPod, () => ({ after: () => this.#end("power-off") })],
    ]);
  }

  #rescan(): typeof done {
    this.#inGuest(rescanPci);
    return done;
  }

  /** The machine is the guest's only when a virtio port leads to the host: never reach into a test's host. */
  #inGuest(act: () => void): void {
    if (this.#options.channel === portNames.control) act();
  }

  #watchSignals(): void {
    const fd = sys.signals(Object.values(signals));
    const buffer = new Uint8Array(128 * 16);
    this.#loop.watch(fd, pollEvent.in, (events) => {
      const count = readable(events) ? (sys.read(fd, buffer) ?? 0) : 0;
      for (let at = 0; at < count; at += 128) this.#signal(buffer[at] as number);
      this.#processes.reap();
    });
  }

  /** As PID 1 with the signals busybox's halt, poweroff and reboot send; otherwise the usual end of a service. */
  #signal(number: number): void {
    if (number === signals.child) return;
    if (!this.#options.isInit) {
      if (number === signals.terminate || number === signals.interrupt) sys.exit(0);
      return;
    }
    const restart = number === signals.terminate || number === signals.interrupt;
    endMachine(this.#loop, restart ? "restart" : "power-off");
  }

  #end(how: "power-off" | "restart"): void {
    if (this.#options.isInit) endMachine(this.#loop, how);
    else sys.exit(0);
  }
}
