import type { IfName } from "../../../core/names.ts";
import { type TunnelBirth, UdpTunnel } from "./tunnel.ts";

/** The tunnels of this process, by overlay. They end with it. */
export class Tunnels implements AsyncDisposable {
  /** Called when a tunnel breaks; the next look at its overlay opens it again. */
  onEnd: (overlay: string, reason: string) => void = () => {};
  readonly #open: (birth: TunnelBirth, onEnd: (reason: string) => void) => UdpTunnel;
  readonly #tunnels = new Map<string, UdpTunnel>();

  /** Opened in the calling thread's network namespace, unless `open` does it elsewhere. */
  constructor(
    open: (birth: TunnelBirth, onEnd: (reason: string) => void) => UdpTunnel = (birth, onEnd) =>
      new UdpTunnel(birth, onEnd),
  ) {
    this.#open = open;
  }

  get(overlay: string): UdpTunnel | undefined {
    return this.#tunnels.get(overlay);
  }

  get all(): ReadonlyMap<string, UdpTunnel> {
    return this.#tunnels;
  }

  /** Returns the name of its device. Throws `SYSCALL_FAILED`. */
  async open(overlay: string, birth: TunnelBirth): Promise<IfName> {
    const tunnel = this.#open(birth, (reason) => this.onEnd(overlay, reason));
    this.#tunnels.set(overlay, tunnel);
    await tunnel.ready;
    return tunnel.device;
  }

  /** Absent is success. */
  async close(overlay: string): Promise<void> {
    const tunnel = this.#tunnels.get(overlay);
    this.#tunnels.delete(overlay);
    await tunnel?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#tunnels.keys()].map((overlay) => this.close(overlay)));
  }
}
