import type * as z from "zod";
import { type Cidr, parseCidr } from "../../core/address.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

/** How container runtimes are served. */
export interface CniSettings {
  readonly enabled: boolean;
  readonly socket: string;
  /** Where DELs are that came while podnetd was away. */
  readonly pendingDir: string;
  /** Reached by the gateway of a container's network. */
  readonly serviceCidr: Cidr | undefined;
  /** MTU of containers whose configuration does not set one; undefined: their network's. */
  readonly mtu: number | undefined;
  /** Plugins of others, for pods that take their network from them. */
  readonly runtime: RuntimeSettings;
}

export interface RuntimeSettings {
  /** Lists of plugins. */
  readonly listDir: string;
  /** The plugins' programs. */
  readonly directories: readonly string[];
  /** Each vendor's own come first: `DIR/PLUGIN/bin`. */
  readonly vendors: string;
  /** Longest that one may take, milliseconds. */
  readonly timeoutMs: number;
}

type Table = z.infer<typeof configSchema>["cni"];

/** The table as its schema types it, without what may be left out. */
export type CniValues = Omit<Table, "service_cidr" | "mtu"> &
  Partial<Pick<Table, "service_cidr" | "mtu">>;

export const cniSettings = (values: CniValues, read: Reader): CniSettings => ({
  enabled: values.enabled,
  socket: values.socket,
  pendingDir: values.pending_dir,
  serviceCidr:
    values.service_cidr === undefined
      ? undefined
      : read("cni.service_cidr", values.service_cidr, (text) => parseCidr(text)),
  mtu: values.mtu,
  runtime: {
    listDir: values.conf_dir,
    directories: values.bin_dirs,
    vendors: values.vendor_dir,
    timeoutMs: values.plugin_timeout_s * 1000,
  },
});
