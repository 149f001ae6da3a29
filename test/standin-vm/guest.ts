import { encodeCtlFrame, encodeNext } from "../../guest-init/protocol/ctl-frame.ts";
import { agentContainer, command } from "../../guest-init/protocol/codes.ts";
import { encodeProcessEvent } from "../../guest-init/protocol/process-messages.ts";
import { encodeTtyFrame } from "../../guest-init/protocol/tty-frame.ts";
import { Agent, illSpoken } from "./agent.ts";
import type { Behaviour } from "./behaviour.ts";
import { HyperstartInside } from "./hyperstart-inside.ts";
import type { Nic } from "./machine.ts";
import { GuestNetwork } from "./guest-network.ts";
import { noise } from "./noise.ts";
import { Wire } from "./wire.ts";

export interface GuestOptions {
  readonly behaviour: Behaviour;
  /** Paths of the two channels' sockets. */
  readonly sockets: ReadonlyMap<string, string>;
  /** The guest opens or closes a port. */
  readonly port: (id: string, open: boolean) => void;
  readonly commandCame: (name: string) => void;
  readonly console: (text: string) => void;
  readonly powerOff: () => void;
  readonly reset: () => void;
}

/**
 * Small frames that a guest may send, without end: on the control channel or on that of streams.
 */
const floods: Readonly<Record<string, { readonly wire: 0 | 1; readonly frame: Uint8Array }>> = {
  "flood-next": { wire: 0, frame: encodeNext(0) },
  "flood-events": {
    wire: 0,
    frame: encodeCtlFrame(
      command.processAsyncEvent,
      encodeProcessEvent({ container: agentContainer, process: "x", event: "finished", status: 0 }),
    ),
  },
  "flood-ends": { wire: 1, frame: encodeTtyFrame(7n) },
  "flood-ready": { wire: 0, frame: encodeCtlFrame(command.ready) },
};

const portIds = ["channel0", "channel1"] as const;

/**
 * The guest: boots when its processors run for the first time, then its agent speaks, or does what
 * else the test asked for.
 */
export class Guest {
  readonly network = new GuestNetwork();
  readonly wires: readonly [Wire, Wire];
  readonly #options: GuestOptions;
  readonly #agent: Agent;
  /** Instead of podnet's agent. */
  readonly #hyperstart: HyperstartInside | undefined;
  readonly #timers = new Set<NodeJS.Timeout>();
  #booted = false;

  constructor(options: GuestOptions) {
    this.#options = options;
    const { behaviour } = options;
    const wire = (id: string): Wire =>
      new Wire(id, options.sockets.get(id) ?? id, behaviour.number("drip") ?? 0);
    this.wires = [wire(portIds[0]), wire(portIds[1])];
    const [control, tty] = this.wires;
    this.#agent = new Agent({
      control,
      tty,
      network: this.network,
      behaviour,
      commandCame: options.commandCame,
      powerOff: () => this.#powerOff(),
      announced: () => this.#announced(),
    });
    if (behaviour.has("hyperstart"))
      this.#hyperstart = new HyperstartInside({
        wires: this.wires,
        network: this.network,
        behaviour,
        powerOff: () => this.#powerOff(),
      });
  }

  plugged(nic: Nic, tapFd: number): void {
    this.network.plugged(nic, tapFd);
    this.#hyperstart?.plugged(nic);
  }

  unplugged(nic: Nic): void {
    this.network.unplugged(nic);
    this.#hyperstart?.unplugged(nic);
  }

  boot(): void {
    if (this.#booted) return;
    this.#booted = true;
    this.#options.console("stand-in guest boots\r\n");
    if (this.#options.behaviour.has("ill-spoken")) this.#options.console(illSpoken.repeat(1000));
    setImmediate(() => this.#begin());
  }

  /** Everything starts anew. */
  reset(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#ports(false);
    if (this.#booted) setImmediate(() => this.#begin());
  }

  #begin(): void {
    const { behaviour } = this.#options;
    if (behaviour.has("silent")) return;
    this.#agent.mute = behaviour.has("mute");
    this.#ports(true);
    this.#options.commandCame("ready");
    if (behaviour.has("garbage")) return this.#whenJoined(() => this.#forEver(() => noise(4096)));
    if (behaviour.has("huge")) return this.#whenJoined(() => this.#huge());
    if (this.#hyperstart === undefined) this.#agent.start();
    else void this.#hyperstart.start();
  }

  /** READY has been said: from here on a guest's time counts. */
  #announced(): void {
    this.#later("wedge-after", () => {
      this.#agent.mute = true;
    });
    this.#later("garbage-after", () => this.#forEver(() => noise(4096)));
    this.#later("huge-after", () => this.#huge());
    this.#later("die-after", () => this.#ports(false));
    this.#later("poweroff-after", () => this.#powerOff());
    this.#later("reset-after", () => this.#options.reset());
    this.#later("flood", () => this.#forEver(() => encodeCtlFrame(command.cmdFinished)));
    for (const [word, { wire, frame }] of Object.entries(floods)) {
      const many = Buffer.concat(Array.from({ length: 4096 }, () => frame));
      this.#later(word, () => this.#forEver(() => many, wire, true));
    }
    this.#later("restart", () => {
      this.#ports(false);
      this.#ports(true);
      this.#agent.start();
    });
  }

  #powerOff(): void {
    this.#ports(false);
    this.#options.powerOff();
  }

  #ports(open: boolean): void {
    for (const [index, wire] of this.wires.entries()) {
      if (wire.isOpen === open) continue;
      if (open) wire.open();
      else wire.close();
      this.#options.port(portIds[index] as string, open);
    }
  }

  #later(word: string, act: () => void): void {
    const ms = this.#options.behaviour.number(word);
    if (ms === undefined) return;
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, ms);
    this.#timers.add(timer);
  }

  #whenJoined(act: () => void): void {
    const [control] = this.wires;
    control.joined = act;
    if (control.chardev.connected) act();
  }

  /** A frame of 4 GiB, and its bytes. */
  #huge(): void {
    this.wires[0].send(Uint8Array.of(0, 0, 0, command.ready, 0xff, 0xff, 0xff, 0xff));
    this.#forEver(() => new Uint8Array(65_536));
  }

  /** As fast as the host reads; with `again` also when it has hung up and come back. */
  #forEver(make: () => Uint8Array, wire: 0 | 1 = 0, again = false): void {
    const { chardev } = this.wires[wire];
    const more = (): void => {
      if (!chardev.connected) {
        if (again) setTimeout(more, 20).unref();
        return;
      }
      chardev.send(make());
      void chardev.flush().then(() => setImmediate(more));
    };
    more();
  }
}
