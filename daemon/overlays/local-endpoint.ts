import { type Mac, macFromRandom } from "../../core/address.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { OverlayBackend } from "../../network/model/overlay.ts";
import { overlayMtu } from "../../network/overlay/mtu.ts";
import type { Host } from "../../overlay/claim.ts";
import type { OverlayConfig } from "../../overlay/flannel/config.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import type { OverlayConfig as OverlaySettings } from "../config/overlay.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { Uplink } from "./kernel/choose-uplink.ts";
import { Extension, type ExtensionConfig } from "./kernel/extension.ts";
import { UplinkFollower } from "./kernel/follow-uplink.ts";
import { familiesOf, hostOf, kernelBackend, type Macs, vtepDevice } from "./kernel/make-desired.ts";
import type { OverlayMemory } from "./records/overlay-memory.ts";
import { refuseBackend } from "./lease/refuse-backend.ts";

export interface LocalEndpointParts {
  readonly settings: Pick<OverlaySettings, "choice" | "extension" | "txChecksum">;
  readonly owner: OwnerId;
  readonly memory: OverlayMemory;
  readonly log: Log;
  readonly randomBytes: (count: number) => Uint8Array;
  /**
   * Why the overlay's configuration conflicts with this host's other overlays; undefined if it does
   * not.
   */
  readonly conflict: (config: OverlayConfig) => PodnetError | undefined;
  /** The MAC of a VXLAN device of this name that is not podnet's. */
  readonly foreignMac: (device: IfName) => Promise<Mac | undefined>;
  /** Called when the data about this host for other hosts is known, or has changed. */
  readonly onHost: (host: Host) => void;
}

/**
 * The wait before an unusable backend is tried again: a module may be loaded, or a command
 * repaired.
 */
const backendBackoff = { firstMs: 2500, longestMs: 10_000 } as const;
/** The wait before a failed watch of the host is retried. */
const uplinkBackoff = { firstMs: 500, longestMs: 2000 } as const;
const noUplink = "No interface leads to the other hosts";

/**
 * This host's local endpoint and backend in an overlay, derived from the overlay's configuration.
 */
export class LocalEndpoint implements AsyncDisposable {
  readonly #parts: LocalEndpointParts;
  readonly #over = new AbortController();
  #config: OverlayConfig | undefined;
  #families = "";
  #uplinks: UplinkFollower | undefined;
  #uplink: Uplink | undefined;
  /** The configuration's backend; undefined until it is known to be usable. */
  #usable:
    | { readonly extension: Extension | undefined; readonly output: string | undefined }
    | undefined;
  #damages = false;
  /** Why the host has no uplink, as the watch of the host reported it. */
  #noUplink: PodnetError | undefined;
  readonly #backends: WorkQueue<"backend">;
  readonly #watches: WorkQueue<"uplink">;

  constructor(parts: LocalEndpointParts) {
    this.#parts = parts;
    this.#backends = new WorkQueue({
      name: "overlay-backends",
      backoff: backendBackoff,
      onDegraded: (_, { error: err }) =>
        parts.log.error({ err }, "The overlay's backend cannot be used"),
    });
    this.#watches = new WorkQueue({
      name: "overlay-uplinks",
      backoff: uplinkBackoff,
      onDegraded: (_, { error: err }) => parts.log.error({ err }, noUplink),
    });
  }

  get uplink(): Uplink | undefined {
    return this.#uplink;
  }

  /** The reasons why this host is not published to other hosts. */
  get troubles(): readonly string[] {
    const unwatched = this.#watches.error("uplink");
    return [unwatched ?? this.#noUplink, this.#backends.error("backend")].flatMap((error) => {
      const missing = error?.details["missing"];
      return error === undefined
        ? []
        : [missing === undefined ? error.message : `${error.message}: it lacks ${String(missing)}`];
    });
  }

  /**
   * The kernel's configuration; undefined if the backend does not use the kernel, or it is not
   * known yet.
   */
  get backend(): OverlayBackend | undefined {
    return this.#config === undefined || this.#usable === undefined
      ? undefined
      : kernelBackend(this.#config.backend, this.#txChecksum);
  }

  /** Whether checksums are left to the network card; undefined leaves that as it is. */
  get #txChecksum(): boolean | undefined {
    const { txChecksum } = this.#parts.settings;
    if (txChecksum === "auto") return this.#damages ? false : undefined;
    return txChecksum === "on";
  }

  /** The network card damages checksums that the tunnel leaves to it. */
  doubtCard(): void {
    this.#damages = true;
  }

  /** The commands that follow peers, if the backend is `extension`. */
  get extension(): Extension | undefined {
    return this.#usable?.extension;
  }

  /** The MTU between pods of different hosts; undefined until it is known. */
  get mtu(): number | undefined {
    const { backend } = this;
    if (this.#config === undefined || backend === undefined || this.#uplink === undefined)
      return undefined;
    return overlayMtu(backend, familiesOf(this.#config), this.#uplink.mtu);
  }

  /** The MACs by which other hosts know this one, drawn once the backend was found usable. */
  get macs(): Macs {
    return this.#parts.memory.record.macs ?? {};
  }

  /** The overlay's configuration is this from now on. */
  configure(config: OverlayConfig): void {
    this.#config = config;
    this.#usable = undefined;
    this.#backends.add("backend", () => this.#prepare());
    this.#watches.add("uplink", () => this.#followUplink());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#backends.close();
    await this.#watches.close();
    await this.#uplinks?.[Symbol.asyncDispose]();
  }

  /**
   * Checks that the backend can be used here, and lets it prepare before this host is published to
   * other hosts. Throws why it cannot be used, unless another configuration came meanwhile.
   */
  async #prepare(): Promise<void> {
    const config = this.#config;
    if (config === undefined || this.#over.signal.aborted) return;
    const { settings, log, conflict } = this.#parts;
    try {
      const { type } = config.backend;
      const use = { type, v6: config.v6 !== undefined, extension: settings.extension };
      const refusal = conflict(config) ?? (await refuseBackend(use));
      if (refusal !== undefined) throw refusal;
      const extension =
        config.backend.type === "extension"
          ? new Extension({ config: config.backend satisfies ExtensionConfig, log })
          : undefined;
      const output = await extension?.before(this.#over.signal);
      await this.#adoptMacs(config);
      this.#drawMacs(config);
      if (config !== this.#config) return;
      this.#usable = { extension, output };
      this.#present();
    } catch (thrown) {
      if (config === this.#config) throw thrown;
    }
  }

  /** Adopts the MACs of flanneld's device if it is left: other hosts know this host by them. */
  async #adoptMacs(config: OverlayConfig): Promise<void> {
    const { backend } = config;
    if (backend.type !== "vxlan") return;
    const { memory, foreignMac } = this.#parts;
    for (const family of familiesOf(config)) {
      const mac = await foreignMac(vtepDevice(family, backend.vni));
      if (mac !== undefined) memory.remember({ macs: { ...memory.record.macs, [family]: mac } });
    }
  }

  /**
   * Draws the MACs once and keeps them for ever: a MAC that could not be stored is not published.
   */
  #drawMacs(config: OverlayConfig): void {
    const { memory, randomBytes } = this.#parts;
    const known = this.macs;
    const drawn = familiesOf(config).map((family) => [
      family,
      known[family] ?? macFromRandom(randomBytes(6)),
    ]);
    memory.remember({ macs: { ...known, ...Object.fromEntries(drawn) } });
  }

  /** Watches the host for the families of the configuration. Throws why that fails. */
  async #followUplink(): Promise<void> {
    if (this.#config === undefined || this.#over.signal.aborted) return;
    const families = familiesOf(this.#config);
    if (this.#families === families.join()) return;
    this.#families = "";
    await this.#uplinks?.[Symbol.asyncDispose]();
    this.#uplinks = undefined;
    this.#uplinks = new UplinkFollower({
      choice: this.#parts.settings.choice,
      families,
      onUplink: (uplink) => {
        this.#uplink = uplink;
        this.#noUplink = undefined;
        this.#present();
      },
      onTrouble: (error) => {
        this.#noUplink = error;
        this.#parts.log.error({ err: error }, noUplink);
      },
    });
    this.#families = families.join();
    void this.#uplinks.look();
  }

  #present(): void {
    const { owner, onHost } = this.#parts;
    if (this.#config === undefined || this.#uplink === undefined || this.#usable === undefined)
      return;
    const host = hostOf(owner, this.#uplink, this.#config.backend, this.macs);
    const { output } = this.#usable;
    onHost(
      host.attributes.type === "extension"
        ? { ...host, attributes: { type: "extension", output } }
        : host,
    );
  }
}
