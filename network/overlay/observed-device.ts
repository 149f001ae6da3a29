import type { IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { VxlanBirth } from "./change.ts";

/** The link with the device's name. */
export interface ObservedDevice {
  readonly device: IfName;
  readonly kind: string | undefined;
  readonly alias: string | undefined;
  readonly group: number;
  readonly mtu: number;
  readonly up: boolean;
  readonly mac: Mac | undefined;
  /**
   * The properties of its creation; `parent` is undefined if it is bound to no link, or to one that
   * has gone.
   */
  readonly vxlan:
    | (Omit<VxlanBirth, "parent" | "local"> & {
        readonly parent: IfName | undefined;
        readonly local: VxlanBirth["local"] | undefined;
        /** Whether it has a default destination, to which frames for unknown MACs are flooded. */
        readonly remote: boolean;
      })
    | undefined;
  readonly addresses: readonly IpPrefix[];
  /**
   * Whether checksums of packets that leave by it are left to the card below; undefined if it was
   * not queried.
   */
  readonly txChecksum?: boolean | undefined;
}
