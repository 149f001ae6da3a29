import { type Dirent, readdirSync, readFileSync, readlinkSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Podnet } from "../../api/client.ts";
import type { Machine } from "./lab.ts";
import type { Podnetd } from "./podnetd.ts";

/**
 * Everything a pod could leave behind, one thing a line: links, addresses, routes, neighbours, rules of both iptables
 * variants and of nftables, sysctls, processes, files, rows, addresses in use, and what the daemon holds open. Compare two with
 * `difference`.
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

/** What there is without a podnetd: what one that has ended left on the host, but for its state directory. */
export async function takeHostInventory(machine: Machine, directory: string): Promise<string> {
  return (await onHost(machine, directory, 0)).join("\n");
}

async function onHost(machine: Machine, directory: string, daemon: number): Promise<string[]> {
  const parts = await Promise.all([
    links(machine),
    routes(machine),
    rules(machine),
    sysctls(machine),
  ]);
  return [
    ...parts.flat(),
    ...processes(directory, daemon),
    ...files(path.join(directory, "run")),
    ...controlGroups(directory),
  ];
}

type Json = Readonly<Record<string, unknown>>;

async function ip(machine: Machine, ...words: string[]): Promise<readonly Json[]> {
  const text = await machine.run("ip", "-j", ...words);
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

/** Links with their addresses. Link-local ones and states are left out: they follow the carrier, which ports bring. */
async function links(machine: Machine): Promise<string[]> {
  const all = await ip(machine, "-d", "address", "show");
  return all.flatMap((link) => [
    words("link", link, "ifname", "address", "mtu", "master", "group", "ifalias"),
    ...(link["addr_info"] as Json[])
      .filter(({ scope }) => scope !== "link")
      .map((address) => words(`address ${String(link["ifname"])}`, address, "local", "prefixlen")),
  ]);
}

async function routes(machine: Machine): Promise<string[]> {
  const known = ["ifname", "dst", "dev", "gateway", "table", "protocol", "lladdr"];
  const all = await Promise.all(
    ["-4", "-6"].map((family) => ip(machine, family, "route", "show", "table", "all")),
  );
  // Of the lab's own links neighbours come and go.
  const neighbours = await ip(machine, "neighbour", "show");
  return [
    ...all
      .flat()
      .filter(({ dst }) => !/^(?:fe80|ff00|multicast)/.test(String(dst)))
      .map((route) => words("route", route, ...known)),
    ...neighbours
      .filter(({ dev, lladdr }) => lladdr !== undefined && dev !== "lan0" && dev !== "wan0")
      .map((neighbour) => words("neighbour", neighbour, ...known)),
  ];
}

async function rules(machine: Machine): Promise<string[]> {
  const programs = ["iptables", "ip6tables"].flatMap((family) =>
    ["nft", "legacy"].map((variant) => `${family}-${variant}`),
  );
  const saved = await Promise.all(
    programs.map(async (program) => {
      const text = await machine.run(`${program}-save`);
      return text
        .split("\n")
        .filter((line) => line !== "" && !line.startsWith("#"))
        .map((line) => `${program} ${line.replace(/ ?\[\d+:\d+\] ?/, "")}`);
    }),
  );
  // (The tables of iptables-nft are of other families.)
  const tables = await machine.run("nft", "--stateless", "list", "ruleset", "inet");
  const lines = tables.split("\n").map((line) => line.trim());
  return [...saved.flat(), ...lines.filter((line) => line !== "").map((line) => `nft ${line}`)];
}

/** Those that podnetd sets, and their neighbours. (`sysctl -a -r` walks through all there are: it takes seven times as long.) */
const sysctlPaths = [
  "ipv4/ip_forward",
  ...["ipv4", "ipv6"].flatMap((family) => ["all", "default"].map((of) => `${family}/conf/${of}`)),
];

async function sysctls(machine: Machine): Promise<string[]> {
  // (Some may be written only, which is no failure.)
  const command = `cd /proc/sys/net && grep -rs "" ${sysctlPaths.join(" ")}; test $? -ne 1`;
  const text = await machine.run("sh", "-c", command);
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => `net/${line.replace(":", " = ")}`);
}

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

/** Of machines that are shut in, below where the sandbox shows its part of them; see `startPodnetd`. */
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

/** Tables that only tell what has been: they grow with every create, up to a bound of their own. */
const history = ["events"];

/** Rows of every table by their keys. Addresses in quarantine belong to nobody. */
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
 * What the daemon holds open, by kind: numbers of sockets and pipes say nothing. One template is kept for the next create,
 * whoever's was the first: a file of its memory and one of its state. More of them are left over.
 */
function descriptors(pid: number): string[] {
  const directory = `/proc/${pid}/fd`;
  const open = readdirSync(directory)
    .map((fd) => orNothing(() => readlinkSync(path.join(directory, fd))))
    .filter((target) => target !== "")
    .map((target) => `open ${target.replace(/:\[\d+\]$/, "")}`);
  return open.filter(
    (line, at) => !line.startsWith("open /memfd:podnet-") || open.indexOf(line) !== at,
  );
}

/** In which files of /proc/PID/net sockets stand, and which of a line's words are their inode and what they are. */
const socketTables = {
  unix: { inode: 6, told: [7] },
  netlink: { inode: 9, told: [1, 3] },
  tcp: { inode: 9, told: [1, 2, 3] },
  tcp6: { inode: 9, told: [1, 2, 3] },
  udp: { inode: 9, told: [1, 2] },
  udp6: { inode: 9, told: [1, 2] },
  packet: { inode: 8, told: [3, 4] },
} as const;

/** What kinds of sockets a process holds, in the kernel's words: for a test that has found one too many. */
export function sockets(pid: number): string[] {
  const known = new Map(
    Object.entries(socketTables).flatMap(([table, { inode, told }]) =>
      orNothing(() => readFileSync(`/proc/${pid}/net/${table}`, "latin1"))
        .split("\n")
        .map((line) => line.trim().split(/\s+/))
        .map((cells) => [cells[inode], [table, ...told.map((at) => cells[at])].join(" ")]),
    ),
  );
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory)
    .map((fd) => /^socket:\[(\d+)\]$/.exec(orNothing(() => readlinkSync(path.join(directory, fd)))))
    .flatMap((found) => (found === null ? [] : [known.get(found[1]) ?? `socket ${found[1]}`]))
    .sort();
}
