import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Podnet } from "../../api/client.ts";

/** Counts of the pools that do not add up (promise 8), in words. */
export async function pooled(client: Podnet): Promise<readonly string[]> {
  const { networks } = await client.networks.list({});
  return networks.flatMap(({ name, subnets }) =>
    subnets.flatMap(({ cidr, size, free, used, reserved, quarantined }) => {
      const parts = [free, used, reserved, quarantined].map(Number);
      const sum = parts.reduce((total, part) => total + part, 0);
      return sum === Number(size) ? [] : [`${name} ${cidr}: ${parts.join(" + ")} is not ${size}`];
    }),
  );
}

/** What the rows say at one moment: every pod's addresses are held by it alone. */
export function rowsAgree(stateDir: string): readonly string[] {
  using db = new DatabaseSync(join(stateDir, "state.db"), { readOnly: true });
  db.exec("BEGIN");
  const pods = db.prepare("SELECT id, plan FROM pods").all();
  const leases = db
    .prepare("SELECT address, owner_id FROM leases WHERE owner_kind = 'pod' AND freed_ms IS NULL")
    .all();
  db.exec("COMMIT");
  const planned = pods.flatMap(({ id, plan }) => {
    const { interfaces } = JSON.parse(String(plan)) as {
      interfaces: { position: number; addresses: string[] }[];
    };
    return interfaces.flatMap(({ position, addresses }) =>
      addresses.map((address) => `${address.replace(/\/.*/, "")} ${String(id)}/${position}`),
    );
  });
  const held = leases.map(({ address, owner_id }) => `${String(address)} ${String(owner_id)}`);
  return [
    ...planned.filter((one) => !held.includes(one)).map((one) => `not held: ${one}`),
    ...held.filter((one) => !planned.includes(one)).map((one) => `held by no pod: ${one}`),
  ];
}
