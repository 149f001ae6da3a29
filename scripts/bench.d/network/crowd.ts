import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import { type PodId, podIdFromBytes } from "../../../core/names.ts";
import type { FirewallName } from "../../../network/firewall/open.ts";
import type { Machine } from "../../../test/lab/lab.ts";

/** Synthetic pods alongside the one that is measured: rows, ports and rules, and no machine. */
export const crowdSize = 899;

/**
 * The pod that the synthetic ones are copies of: its only interface and only published port are
 * copied with it.
 */
export const model = {
  name: "model",
  ports: [{ hostIp: "0.0.0.0", hostPort: 20_000, podPort: 80 }],
} as const;

/** Numbers of the synthetic pods, beginning at 1. */
export const crowd: readonly number[] = Array.from({ length: crowdSize }, (_, i) => i + 1);

export const crowdId = (n: number): PodId =>
  podIdFromBytes(Uint8Array.from([...new Uint8Array(9), n >> 10, (n >> 5) & 31, n & 31]));
export const crowdAddress = (n: number): string => `10.88.${8 + (n >> 8)}.${n & 255}`;
export const crowdHostPort = (n: number): number => model.ports[0].hostPort + n;
const crowdMac = (n: number): string => `52:54:99:00:${hex(n >> 8)}:${hex(n & 255)}`;
const hex = (value: number): string => value.toString(16).padStart(2, "0");

/** Copies the model's rows under other names: as many stopped pods. Its daemon does not run. */
export function addCrowdRows(stateDir: string): void {
  using db = open(path.join(stateDir, "state.db"));
  const one = (column: string, from: string): string =>
    String(Object.values(db.prepare(`SELECT ${column} FROM ${from}`).get() ?? {})[0]);
  const id = one("id", "pods");
  const mac = one("mac", "interfaces");
  const address = one("address", "leases WHERE owner_kind = 'pod'");
  db.exec("BEGIN");
  for (const n of crowd) {
    const texts: Texts = [
      [id, crowdId(n)],
      [mac, crowdMac(n)],
      [address, crowdAddress(n)],
      [`"${model.name}"`, `"crowd-${n}"`],
      [String(model.ports[0].hostPort), String(crowdHostPort(n))],
    ];
    copy(db, `SELECT * FROM pods WHERE id = '${id}'`, "pods", texts, {
      name: `crowd-${n}`,
      state: "stopped",
    });
    copy(db, `SELECT * FROM interfaces WHERE pod_id = '${id}'`, "interfaces", texts);
    copy(db, `SELECT * FROM leases WHERE owner_id LIKE '${id}/%'`, "leases", texts);
    copy(db, `SELECT * FROM ports WHERE pod_id = '${id}'`, "ports", texts, {
      host_port: crowdHostPort(n),
    });
  }
  db.exec("COMMIT");
}

/** Gives the bridge as many ports, and the firewall the rules of as many published ones. */
export async function addCrowdToHost(host: Machine, firewall: FirewallName): Promise<void> {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-crowd-"));
  try {
    const batch = path.join(directory, "ports");
    const lines = crowd.map(
      (n) => `tuntap add dev crowd${n} mode tap\nlink set crowd${n} master hyper0\n`,
    );
    writeFileSync(batch, lines.join(""));
    await host.run("ip", "-batch", batch);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  const here = import.meta.dirname;
  const node = path.join(here, "../../node");
  await host.run(node, path.join(here, "crowd-rules.ts"), firewall);
}

type Row = Record<string, SQLInputValue>;
type Texts = readonly (readonly [was: string, is: string])[];

/**
 * Inserts rows once more, with each text replaced wherever it stands, and some columns otherwise.
 */
function copy(
  db: DatabaseSync,
  select: string,
  table: string,
  texts: Texts,
  other: Row = {},
): void {
  const replaced = (value: SQLInputValue): SQLInputValue =>
    typeof value === "string"
      ? texts.reduce((text, [was, is]) => text.replaceAll(was, is), value)
      : value;
  for (const row of db.prepare(select).all() as Row[]) {
    const copied = Object.entries({ ...row, ...other }).map(
      ([name, value]) => [name, replaced(value)] as const,
    );
    const names = copied.map(([name]) => name).join(", ");
    const values = copied.map(() => "?").join(", ");
    db.prepare(`INSERT INTO ${table} (${names}) VALUES (${values})`).run(
      ...copied.map(([, value]) => value),
    );
  }
}

const open = (file: string): DatabaseSync & Disposable => {
  const db = new DatabaseSync(file);
  return Object.assign(db, { [Symbol.dispose]: () => db.close() });
};
