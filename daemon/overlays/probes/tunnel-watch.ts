import { guarded } from "../../../core/guard.ts";
import { familyOf, type Ip } from "../../../core/address.ts";
import { toPodnetError } from "../../../core/errors.ts";
import { EchoSocket } from "../../../linux/sockets/echo-socket.ts";
import type { Log } from "../../../linux/log.ts";
import { isDatagramRefused } from "../../../linux/sockets/refused-datagram.ts";
import type { BackendType } from "../../../overlay/flannel/backend.ts";
import type { Peer } from "../../../overlay/peers.ts";
import type { OverlayConfig } from "../../config/overlay.ts";
import { probeTargets } from "./probe-targets.ts";
import { type Probe, Prober } from "./prober.ts";
import { ReachReport } from "./reach-report.ts";
import {
  type AskEcho,
  type AskRefusal,
  type ChecksumProbe,
  type PathProbe,
  probeChecksum,
  probePath,
} from "./tunnel-probes.ts";

export interface TunnelWatchOptions {
  readonly settings: Pick<OverlayConfig, "probeMs" | "txChecksum">;
  readonly log: Pick<Log, "debug" | "info" | "warn">;
  /**
   * With `tx_checksum = "auto"`: the tunnel's device is not to leave checksums to the card
   * (`VxlanBackend.txChecksum: false`).
   */
  readonly onDamage: () => void;
  /** Called when another host can be reached, or not any more. */
  readonly onReach?: () => void;
  /** Default: the host's own sockets. */
  readonly ask?: AskEcho;
  readonly askRefusal?: AskRefusal;
  /** The `afterMs` of `ReachReport`. */
  readonly reportAfterMs?: number;
}

/** The tunnel through which peers are probed. */
export interface WatchedTunnel {
  readonly backend: BackendType;
  /** The MTU of the overlay's pods. */
  readonly mtu: number;
  readonly peers: Iterable<Peer>;
}

const publicAddresses = ({ publicIp, publicIp6 }: Peer): readonly Ip[] =>
  [publicIp, publicIp6].filter((ip) => ip !== undefined);

const timeoutMs = 1000;
const pauseMs = 1000;
/** So many of the peers that cannot be reached are named in the log. */
const fewPeers = 5;

/**
 * Knows which peers are reachable, and probes the tunnel to the first peer that answers: whether
 * packets of the overlay's MTU arrive in one piece, and whether checksums arrive intact. It probes
 * again when the MTU or the backend changes, and when a peer is reachable again. It logs problems
 * as warnings and lists them in `troubles`.
 */
export class TunnelWatch implements Disposable {
  readonly #options: TunnelWatchOptions;
  readonly #sockets = new Map<4 | 6, EchoSocket | undefined>();
  readonly #prober: Prober;
  readonly #reach: ReachReport;
  readonly #ending = new AbortController();
  #tunnel: Omit<WatchedTunnel, "peers"> | undefined;
  #path: PathProbe | undefined;
  #checksum: ChecksumProbe | undefined;
  #trying = false;
  /**
   * The probe targets of each peer, computed once: changes arrive for one peer at a time, and there
   * are thousands of peers.
   */
  #targets = new WeakMap<Peer, readonly Ip[]>();
  #pause: NodeJS.Timeout | undefined;
  #waiting: WatchedTunnel | undefined;

  /**
   * In the network namespace of the calling thread. Takes CAP_NET_RAW: without it no peer is
   * reachable, and that is warned of.
   */
  constructor(options: TunnelWatchOptions) {
    this.#options = options;
    this.#prober = new Prober({
      ask: (address, { timeoutMs: ms }) => this.#ask(address, { timeoutMs: ms }),
      periodMs: options.settings.probeMs,
      onChange: (key, probe) => this.#changed(key, probe),
    });
    const { log, reportAfterMs: afterMs } = options;
    this.#reach = new ReachReport({
      log,
      reach: () => ({ ...this.#prober.counts, lost: this.#prober.unreachable(fewPeers) }),
      ...(afterMs === undefined ? {} : { afterMs }),
    });
  }

  /** Call this at each change of the tunnel, however often: the tunnel is checked once a second. */
  follow(tunnel: WatchedTunnel): void {
    if (this.#options.settings.probeMs === 0 || this.#ending.signal.aborted) return;
    const same = this.#tunnel?.backend === tunnel.backend && this.#tunnel.mtu === tunnel.mtu;
    if (this.#pause !== undefined && same) {
      this.#waiting = tunnel;
      return;
    }
    clearTimeout(this.#pause);
    this.#waiting = undefined;
    this.#pause = setTimeout(
      guarded("overlay", () => {
        this.#pause = undefined;
        const next = this.#waiting;
        this.#waiting = undefined;
        if (next !== undefined) this.follow(next);
      }),
      pauseMs,
    ).unref();
    this.#follow(tunnel);
  }

  #follow({ backend, mtu, peers }: WatchedTunnel): void {
    const before = this.#tunnel;
    this.#tunnel = { backend, mtu };
    if (before?.backend !== backend || before.mtu !== mtu) {
      this.#path = undefined;
      this.#checksum = undefined;
    }
    if (before?.backend !== backend) this.#targets = new WeakMap();
    const all = [...peers];
    this.#prober.follow(
      new Map(all.map((peer) => [peer.key, this.#targetsOf(peer)])),
      new Map(all.map((peer) => [peer.key, publicAddresses(peer)])),
    );
    // A removed peer no longer counts.
    this.#reach.changed();
    const known = before && this.#prober.reached;
    if (this.#path === undefined && known !== undefined) this.#try(known);
  }

  #targetsOf(peer: Peer): readonly Ip[] {
    const known =
      this.#targets.get(peer) ??
      (this.#tunnel === undefined ? [] : probeTargets(peer, this.#tunnel.backend));
    this.#targets.set(peer, known);
    return known;
  }

  /** The result of the last probe of a peer; undefined until there was one. */
  of(key: string): Probe | undefined {
    return this.#prober.of(key);
  }

  get counts(): Prober["counts"] {
    return this.#prober.counts;
  }

  /** The problems of the tunnel, one line each. */
  get troubles(): readonly string[] {
    const mtu = this.#tunnel?.mtu ?? 0;
    return [
      ...(this.#path?.kind === "less"
        ? [`Packets of ${mtu} bytes do not reach other hosts, those of ${this.#path.carries} do`]
        : []),
      ...(this.#checksum === "damaged" && this.#options.settings.txChecksum === "on"
        ? ["Checksums that are left to the network card arrive damaged"]
        : []),
    ];
  }

  [Symbol.dispose](): void {
    this.#ending.abort();
    clearTimeout(this.#pause);
    this.#prober[Symbol.dispose]();
    this.#reach[Symbol.dispose]();
    for (const socket of this.#sockets.values()) socket?.close();
  }

  readonly #ask: AskEcho = (address, options) => {
    if (this.#options.ask !== undefined) return this.#options.ask(address, options);
    const family = familyOf(address);
    if (!this.#sockets.has(family)) this.#sockets.set(family, this.#open(family));
    return (
      this.#sockets.get(family)?.ask(address, options) ??
      Promise.resolve({ kind: "unsent", errno: "EPERM" })
    );
  };

  #open(family: 4 | 6): EchoSocket | undefined {
    try {
      return new EchoSocket(family);
    } catch (err) {
      this.#options.log.warn({ err }, "Other hosts of the overlay cannot be probed");
      return undefined;
    }
  }

  #changed(key: string, { reachable, address }: Probe): void {
    // One line for each peer is for debugging: there are thousands of peers.
    this.#options.log.debug({ peer: key, reachable }, "A host of the overlay was probed");
    this.#reach.changed();
    this.#options.onReach?.();
    if (address !== undefined) this.#try(address);
  }

  /** One at a time; whatever it finds out is of the tunnel as it was when it began. */
  #try(address: Ip): void {
    const tunnel = this.#tunnel;
    if (this.#trying || tunnel === undefined || this.#ending.signal.aborted) return;
    this.#trying = true;
    void this.#tryOut(address, tunnel)
      .catch((thrown: unknown) => {
        const err = toPodnetError(thrown);
        this.#options.log.warn({ err }, "Failed to test the overlay's tunnel");
      })
      .finally(() => (this.#trying = false));
  }

  async #tryOut(address: Ip, tunnel: Omit<WatchedTunnel, "peers">): Promise<void> {
    const { settings, log, onDamage, askRefusal = isDatagramRefused } = this.#options;
    const { signal } = this.#ending;
    const isStill = (): boolean => !signal.aborted && this.#tunnel?.mtu === tunnel.mtu;
    // With `alloc`, podnet does not forward the packets, so their path is not checked.
    if (tunnel.backend !== "alloc") {
      const path = await probePath(this.#ask, address, { mtu: tunnel.mtu, timeoutMs });
      if (!isStill()) return;
      this.#path = path;
      if (path.kind === "less")
        log.warn(
          { mtu: tunnel.mtu, carries: path.carries, address },
          "The overlay's packets are longer than the network between hosts carries: configure a smaller MTU in etcd",
        );
    }
    if (tunnel.backend !== "vxlan" || familyOf(address) === 6 || settings.txChecksum === "off")
      return;
    const checksum = await probeChecksum(askRefusal, address, { timeoutMs, signal });
    if (!isStill()) return;
    this.#checksum = checksum;
    if (checksum !== "damaged") return;
    log.warn(
      { address, tx_checksum: settings.txChecksum },
      "Checksums that the tunnel leaves to the network card arrive damaged",
    );
    if (settings.txChecksum === "auto") onDamage();
  }
}
