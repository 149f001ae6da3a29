import { mainTable, type TableModel } from "./base.ts";
import { learnTable } from "./learn-table.ts";
import { policedPortsTable } from "./policed-ports.ts";
import { policyTable } from "./policy-table.ts";
import { publishedTable } from "./published-table.ts";
import { bridgeGuard } from "./port-guard.ts";
import { serviceTable } from "./service-table.ts";
import { sendersTable } from "./senders-table.ts";
import { hostGuard } from "./host-guard.ts";
import { sharesTable } from "./shares-table.ts";

export const guardTables = [bridgeGuard, hostGuard, sharesTable] as const;

const models: ReadonlyMap<string, TableModel> = new Map(
  [
    mainTable,
    publishedTable,
    ...guardTables,
    sendersTable,
    policyTable,
    policedPortsTable,
    learnTable,
    serviceTable,
  ].map((model) => [model.name, model]),
);

/** One of our tables by its name; by default the main one. */
export function modelOf(name: string = mainTable.name): TableModel {
  const model = models.get(name);
  if (model === undefined) throw new RangeError(`There is no table "${name}"`);
  return model;
}
