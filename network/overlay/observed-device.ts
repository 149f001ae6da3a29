import type { IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { VxlanBirth } from "./change.ts";

/** A link of the name the device is to have. */
export interface ObservedDevice {
  readonly device: IfName;
  readonly kind: string | undefined;
  readonly alias: string | undefined;
  readonly group: number;
  readonly mtu: number;
  readonly up: boolean;
  readonly mac: Mac | undefined;
  /** How it was born; `parent` is undefined when it is bound to no link, or to one that has gone. */
  readonly vxlan:
    | (Omit<VxlanBirth, "parent" | "local"> & {
        readonly parent: IfName | undefined;
        readonly local: VxlanBirth["local"] | undefined;
        /** A default destination: what is unknown is flooded there. */
        readonly remote: boolean;
      })
    | undefined;
  readonly addresses: readonly IpPrefix[];
  /** Checksums of what leaves by it are left to the card below; undefined when nobody asked. */
  readonly txChecksum?: boolean | undefined;
}
