import { connect, type Socket } from "node:net";
import { command } from "../../guest-init/protocol/codes.ts";
import { type HyperstartPeer, startHyperstartPeer } from "../peers/hyperstart.ts";
import type { Behaviour } from "./behaviour.ts";
import type { GuestNetwork } from "./guest-network.ts";
import type { Nic } from "./machine.ts";
import type { Wire } from "./wire.ts";

export interface InsideOptions {
  readonly wires: readonly [Wire, Wire];
  readonly network: GuestNetwork;
  readonly behaviour: Behaviour;
  readonly powerOff: () => void;
}

let started = 0;

/**
 * The hyperstart of test/peers as the agent of a stand-in's guest: its channels are those of the
 * machine.
 */
export class HyperstartInside {
  readonly #options: InsideOptions;
  readonly #names = new Map<string, string>();
  readonly #nics = new Map<string, Nic>();
  #peer: HyperstartPeer | undefined;

  constructor(options: InsideOptions) {
    this.#options = options;
  }

  /** The guest boots: for the first time, or having forgotten everything. */
  async start(): Promise<void> {
    await this.stop();
    const paths = [0, 1].map((port) => `\0standin-${process.pid}-${++started}-${port}`);
    this.#names.clear();
    const { behaviour } = this.#options;
    const peer = await startHyperstartPeer({
      controlPath: paths[0] as string,
      ttyPath: paths[1] as string,
      links: [...this.#nics.values()].map((nic) => ({ name: this.#nameFor(nic), mac: nic.mac })),
      applets: behaviour.is("applets", "few") ? "few" : "all",
      ignores: Object.entries(command)
        .filter(([name]) => behaviour.is("lies", name))
        .map(([, code]) => code),
    });
    this.#peer = peer;
    this.#options.wires.forEach((wire, port) => this.#join(wire, paths[port] as string));
    void peer.exited.then((why) => {
      if (this.#peer === peer && why !== "closed") this.#options.powerOff();
    });
  }

  async stop(): Promise<void> {
    const peer = this.#peer;
    this.#peer = undefined;
    await peer?.close();
  }

  plugged(nic: Nic): void {
    this.#nics.set(nic.id, nic);
    this.#peer?.addLink(this.#nameFor(nic), nic.mac);
  }

  unplugged(nic: Nic): void {
    this.#nics.delete(nic.id);
    this.#names.delete(nic.id);
    this.#peer?.removeLink(nic.mac);
  }

  /** As a kernel names them: the first that is free. */
  #nameFor({ id }: Nic): string {
    const taken = new Set([
      ...this.#names.values(),
      ...(this.#peer?.state.links ?? []).map(({ name }) => name),
    ]);
    for (let number = 0; ; number++) {
      const name = `eth${number}`;
      if (taken.has(name)) continue;
      this.#names.set(id, name);
      return name;
    }
  }

  /**
   * Whoever is connected to a channel of the machine is to the peer's; what it says to no
   * connection waits there.
   */
  #join(wire: Wire, path: string): void {
    let socket: Socket | undefined;
    const join = (): void => {
      socket = connect(path);
      socket.on("error", () => {});
      socket.on("data", (bytes: Buffer) => {
        wire.send(bytes);
        this.#answerForAddresses();
      });
    };
    wire.joined = join;
    wire.left = () => void socket?.destroy();
    wire.received = (bytes) => void socket?.write(bytes);
    if (wire.connected) join();
  }

  /** What the guest has by now is what answers on its taps. */
  #answerForAddresses(): void {
    for (const { mac, up, addresses } of this.#peer?.state.links ?? [])
      this.#options.network.answerFor(mac, up ? addresses : []);
  }
}
