import type { QmpClient, CommandOptions } from "./client.ts";
import type { QmpReturn } from "./commands.ts";

/** What has been plugged into a machine, or was there from its start with an id. */
export type Peripherals = QmpReturn<"qom-list">;

/** Asks for them. Throws as `QmpClient.execute`. */
export const listPeripherals = (qmp: QmpClient, options?: CommandOptions): Promise<Peripherals> =>
  qmp.execute("qom-list", { path: "/machine/peripheral" }, options);
