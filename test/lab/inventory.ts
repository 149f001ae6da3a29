import { type Dirent, readdirSync, readFileSync, readlinkSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Podnet } from "../../api/client.ts";
import { type Shown, savers, shownBy } from "./host-commands.ts";
import type { Machine } from "./lab.ts";
import type { Podnetd } from "./podnetd.ts";

/**
 * Everything a pod could leave behind, one thing a line: links, addresses, routes, neighbours,
 * rules of both iptables variants and of nftables, sysctls, processes, files, rows, addresses in
 * use, and what the daemon holds open. Compare two with `difference`.
 */
export async function takeInventory(
  machine: Machine,
  daemon: Pick<Podnetd, "process" | "directory">,
  client: Podnet,
): Promise<string> {
  const { directory, process: child } = daemon;
  const pid = child.pid as number;
  const [host, used] = await Promise.all([onHost(machine, directory, pid), inUse(client)]);
  return [
    ...host,
    ...used,
    ...files(path.join(directory, "state")),
    ...rows(path.join(directory, "state", "state.db")),
    ...descriptors(pid),
  ].join("\n");
}

/**
 * What there is without a podnetd: what one that has ended left on the host, but for its state
 * directory.
 */
export async function takeHostInventory(machine: Machine, directory: string): Promise<string> {
  return (await onHost(machine, directory, 0)).join("\n");
}

async function onHost(machine: Machine, directory: string, daemon: number): Promise<string[]> {
  const shown = await shownBy(machine);
  return [
    ...links(shown),
    ...routes(shown),
    ...rules(shown),
    ...sysctls(shown),
    ...processes(directory, daemon),
    ...files(path.join(directory, "run")),
    ...controlGroups(directory),
  ];
}

type Json = Readonly<Record<string, unknown>>;

function parsed(shown: Shown, name: string): readonly Json[] {
  const text = shown.get(name) ?? "";
  return text.trim() === "" ? [] : (JSON.parse(text) as Json[]);
}

/** The fields of a thing, in words; those it does not have are left out. */
const words = (kind: string, of: Json, ...fields: readonly string[]): string =>
  [
    kind,
    ...fields.flatMap((field) =>
      of[field] === undefined ? [] : [`${field}=${JSON.stringify(of[field])}`],
    ),
  ].join(" ");

/**
 * Links with their addresses. Link-local ones and states are left out: they follow the carrier,
 * which ports bring.
 */
function links(shown: Shown): string[] {
  return parsed(shown, "addresses").flatMap((link) => [
    words("link", link, "ifname", "address", "mtu", "master", "group", "ifalias"),
    ...(link["addr_info"] as Json[])
      .filter(({ scope }) => scope !== "link")
      .map((address) => words(`address ${String(link["ifname"])}`, address, "local", "prefixlen")),
  ]);
}

function routes(shown: Shown): string[] {
  const known = ["ifname", "dst", "dev", "gateway", "table", "protocol", "lladdr"];
  return [
    ...["routes4", "routes6"]
      .flatMap((family) => parsed(shown, family))
      .filter(({ dst }) => !/^(?:fe80|ff00|multicast)/.test(String(dst)))
      .map((route) => words("route", route, ...known)),
    ...parsed(shown, "neighbours")
      .filter(({ dev, lladdr }) => lladdr !== undefined && dev !== "lan0" && dev !== "wan0")
      .map((neighbour) => words("neighbour", neighbour, ...known)),
  ];
}

const linesOf = (shown: Shown, name: string): string[] =>
  (shown.get(name) ?? "").split("\n").filter((line) => line.trim() !== "");

function rules(shown: Shown): string[] {
  const saved = savers.flatMap((saver) =>
    linesOf(shown, saver)
      .filter((line) => !line.startsWith("#"))
      .map((line) => `${saver.replace("-save", "")} ${line.replace(/ ?\[\d+:\d+\] ?/, "")}`),
  );
  // Without what the kernel counts by itself: connections of ports, and what was refused of them.
  const nft = (shown.get("nft") ?? "")
    .replaceAll(/^\s*elements = \{[^}]*\b(?:ct count over|counter)\b[^}]*\}\n/gm, "")
    .split("\n")
    .filter((line) => line.trim() !== "");
  return [...saved, ...nft.map((line) => `nft ${line.trim()}`)];
}

const sysctls = (shown: Shown): string[] =>
  linesOf(shown, "sysctls").map((line) => `net/${line.replace(":", " = ")}`);

async function inUse(client: Podnet): Promise<string[]> {
  const { networks } = await client.networks.list({});
  return networks.flatMap(({ name, subnets }) =>
    subnets.map(({ cidr, used }) => `in-use ${name} ${cidr} ${used}`),
  );
}

/** Descendants of the daemon, and processes that name the directory or work in it. */
function processes(directory: string, daemon: number): string[] {
  const parents = new Map(
    readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map((name) => [Number(name), parentOf(Number(name))]),
  );
  const descends = (pid: number | undefined): boolean =>
    pid !== undefined && pid !== 0 && (pid === daemon || descends(parents.get(pid)));
  return [...parents.keys()]
    .filter((pid) => pid !== daemon)
    .flatMap((pid) => {
      const line = orNothing(() => readFileSync(`/proc/${pid}/cmdline`, "latin1"));
      const cwd = orNothing(() => readlinkSync(`/proc/${pid}/cwd`));
      // A look for drift may be under way; it ends by itself and changes nothing.
      if (/iptables-(?:nft|legacy)-save/.test(line)) return [];
      const related = descends(pid) || line.includes(directory) || cwd.startsWith(directory);
      return related ? [`process ${line.replaceAll("\0", " ") || "(zombie)"}`] : [];
    });
}

function parentOf(pid: number): number | undefined {
  const stat = orNothing(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  const [, parent] = /\) \S (\d+) /.exec(stat) ?? [];
  return parent === undefined ? undefined : Number(parent);
}

/** What a process shows, or nothing when it has ended while we looked. */
function orNothing(look: () => string): string {
  try {
    return look();
  } catch {
    return "";
  }
}

function files(directory: string): string[] {
  return orNoEntries(() => readdirSync(directory, { recursive: true, withFileTypes: true })).map(
    (entry) => `file ${path.join(entry.parentPath, entry.name)}`,
  );
}

/**
 * Of machines that are shut in, below where the sandbox shows its part of them; see `startPodnetd`.
 */
function controlGroups(directory: string): string[] {
  const hierarchies = ["/run/cgroup", "/run/cgroup/memory", "/run/cgroup/pids"];
  return hierarchies.flatMap((hierarchy) =>
    orNoEntries(() =>
      readdirSync(path.join(hierarchy, path.basename(directory)), { withFileTypes: true }),
    )
      .filter((entry) => entry.isDirectory())
      .map((entry) => `control group ${path.join(entry.parentPath, entry.name)}`),
  );
}

function orNoEntries(look: () => Dirent[]): Dirent[] {
  try {
    return look();
  } catch {
    return [];
  }
}

/** Tables of the past only: they grow with every create, up to a bound of their own. */
const history = ["events"];

/** Rows of every table by their keys. Addresses in quarantine have no holder. */
function rows(file: string): string[] {
  const db = new DatabaseSync(file, { readOnly: true });
  using _db = { [Symbol.dispose]: () => db.close() };
  const columns = `SELECT m.name AS of_table, group_concat(c.name, ' || '' '' || ') AS keys
    FROM sqlite_schema m JOIN pragma_table_info(m.name) c ON c.pk > 0 WHERE m.type = 'table' GROUP BY m.name`;
  return db
    .prepare(columns)
    .all()
    .map(({ of_table, keys }) => ({ table: String(of_table), keys: String(keys) }))
    .filter(({ table }) => !history.includes(table))
    .flatMap(({ table, keys }) => {
      const held = table === "leases" ? "WHERE freed_ms IS NULL" : "";
      const all = db.prepare(`SELECT ${keys} AS key FROM ${table} ${held} ORDER BY 1`).all();
      return all.map(({ key }) => `row ${table} ${String(key)}`);
    });
}

/**
 * What the daemon holds open, by kind: numbers of sockets and pipes say nothing. One template is
 * kept for the next create, whoever's was the first: a file of its memory and one of its state.
 * More of them are left over.
 */
function descriptors(pid: number): string[] {
  const directory = `/proc/${pid}/fd`;
  const open = readdirSync(directory)
    .map((fd) => orNothing(() => readlinkSync(path.join(directory, fd))))
    .filter((target) => target !== "")
    .map((target) => `open ${target.replace(/:\[\d+\]$/, "")}`);
  return open.filter((line, at) => {
    const before = open.slice(0, at).filter((each) => each === line).length;
    if (line.startsWith("open /memfd:podnet-")) return before > 0;
    // SQLite's own, and from the first flushed create on the one that flushes (log-flush.ts).
    return !line.endsWith("/state.db-wal") || before !== 1;
  });
}

/**
 * In which files of /proc/PID/net sockets stand, and which of a line's words are their inode and
 * what they are.
 */
const socketTables = {
  unix: { inode: 6, reported: [7] },
  netlink: { inode: 9, reported: [1, 3] },
  tcp: { inode: 9, reported: [1, 2, 3] },
  tcp6: { inode: 9, reported: [1, 2, 3] },
  udp: { inode: 9, reported: [1, 2] },
  udp6: { inode: 9, reported: [1, 2] },
  packet: { inode: 8, reported: [3, 4] },
} as const;

/**
 * What kinds of sockets a process holds, in the kernel's words: for a test that has found one too
 * many.
 */
export function sockets(pid: number): string[] {
  const known = new Map(
    Object.entries(socketTables).flatMap(([table, { inode, reported }]) =>
      orNothing(() => readFileSync(`/proc/${pid}/net/${table}`, "latin1"))
        .split("\n")
        .map((line) => line.trim().split(/\s+/))
        .map((cells) => [cells[inode], [table, ...reported.map((at) => cells[at])].join(" ")]),
    ),
  );
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory)
    .map((fd) => /^socket:\[(\d+)\]$/.exec(orNothing(() => readlinkSync(path.join(directory, fd)))))
    .flatMap((found) => (found === null ? [] : [known.get(found[1]) ?? `socket ${found[1]}`]))
    .sort();
}
