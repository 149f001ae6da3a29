import type { Clock } from "../../core/clock.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { Deviation } from "../../network/model/deviation.ts";
import type { Overlays } from "../../network/overlay/overlays.ts";
import type { OverlayConfig } from "../../overlay/flannel/config.ts";
import type { Prefix } from "../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import type { OverlayConfig as OverlaySettings } from "../config/overlay.ts";
import type { Networks } from "../networks/networks.ts";
import type { Database } from "../store/database.ts";
import type { SubnetManager } from "./managers/subnet-manager.ts";

export interface OverlayHostOptions {
  readonly name: string;
  /** The prefix of its keys. */
  readonly prefix: Prefix;
  readonly network: NetworkName;
  readonly subnetFile: string;
  readonly settings: OverlaySettings;
  readonly owner: OwnerId;
  readonly manager: SubnetManager;
  readonly overlays: Overlays;
  readonly networks: Networks;
  readonly db: Database;
  readonly clock: Clock;
  /** This boot of the host. */
  readonly bootId: string;
  readonly log: Log;
  readonly randomBytes: (count: number) => Uint8Array;
  /** Others had changed it, and it was put right. */
  readonly onHealed: (name: string, found: readonly Deviation[], pauseMs: number) => void;
  /** Why it cannot be what its configuration says alongside this host's other overlays. */
  readonly conflict: (config: OverlayConfig) => PodnetError | undefined;
  /** Its lease, its phase or what it carries is another. */
  readonly onChange: () => void;
  /** Called when the host has left the overlay: the kernel's state of it has to be removed. */
  readonly onLeft: () => void;
}
