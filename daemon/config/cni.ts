import type { z } from "zod";
import { type Cidr, parseCidr } from "../../core/address.ts";
import type { Reader } from "./config.ts";
import type { configSchema } from "./schema.ts";

/** How container runtimes are served. */
export interface CniSettings {
  readonly enabled: boolean;
  readonly socket: string;
  /** Where DELs are that came while podnetd was away. */
  readonly pendingDir: string;
  /** Reached by the gateway of a container's network. */
  readonly serviceCidr: Cidr | undefined;
  /** Of containers whose configuration names none; undefined: their network's. */
  readonly mtu: number | undefined;
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
});
