/**
 * Keeps the directions of import between rooms (docs/architecture.md) and between the folders of a
 * room, and finds circles of imports and crowded folders. Prints each finding and exits 1. The
 * rooms and what they may import are the table below.
 */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "..");

type Rule = {
  readonly room: string;
  readonly rooms: readonly string[];
  readonly packages: "any" | "none" | readonly string[];
};

/**
 * First match wins, so the narrower path stands above the wider one. `node:` modules count as
 * packages.
 */
const rules: readonly Rule[] = [
  { room: "core/", rooms: [], packages: "none" },
  { room: "ipallocator/", rooms: ["core/"], packages: "none" },
  { room: "linux/rtnetlink/", rooms: ["core/"], packages: "none" },
  { room: "linux/", rooms: ["core/"], packages: ["node:", "koffi", "execa", "pino"] },
  { room: "network/", rooms: ["core/", "linux/"], packages: ["node:"] },
  { room: "hypervisor/", rooms: ["core/", "linux/"], packages: ["node:"] },
  { room: "guest-init/protocol/", rooms: ["core/"], packages: "none" },
  {
    room: "guest-init/agent/",
    rooms: ["core/", "guest-init/protocol/", "linux/rtnetlink/"],
    packages: "none",
  },
  {
    room: "guest-init/channel/",
    rooms: ["core/", "linux/", "guest-init/protocol/"],
    packages: ["node:"],
  },
  { room: "guest-init/image/", rooms: ["core/", "linux/"], packages: ["node:"] },
  { room: "api/", rooms: ["core/"], packages: ["node:", "@bufbuild/protobuf", "@connectrpc/"] },
  { room: "overlay/", rooms: ["core/", "etcd/"], packages: "none" },
  { room: "cni/protocol/", rooms: ["core/"], packages: "none" },
  { room: "cni/plugin/", rooms: ["core/", "cni/protocol/"], packages: "none" },
  { room: "cni/runtime/", rooms: ["core/", "linux/", "cni/protocol/"], packages: ["node:"] },
  { room: "etcd/", rooms: ["core/"], packages: ["node:", "@bufbuild/protobuf", "@connectrpc/"] },
  {
    room: "cli/",
    rooms: ["core/", "api/"],
    packages: ["node:", "@bufbuild/protobuf", "@connectrpc/", "commander", "tar", "yaml"],
  },
  // The witnesses of `podnet verify` share nothing with podnet: that is their worth.
  { room: "daemon/verify/witness-host.ts", rooms: [], packages: ["node:", "netlink"] },
  { room: "daemon/verify/witness-vm.ts", rooms: [], packages: ["node:", "qemu-qmp"] },
  { room: "daemon/verify/witness-rules", rooms: [], packages: ["node:"] },
  { room: "daemon/verify/witness-sockets.ts", rooms: [], packages: ["node:"] },
  {
    room: "daemon/",
    rooms: [
      "core/",
      "linux/",
      "ipallocator/",
      "network/",
      "hypervisor/",
      "guest-init/",
      "api/",
      "etcd/",
      "overlay/",
      "cni/protocol/",
      "cni/runtime/",
      "package.json",
    ],
    packages: [
      "node:",
      "@bufbuild/protobuf",
      "@connectrpc/",
      "zod",
      "smol-toml",
      "ip-cidr",
      "commander",
      "prom-client",
      "pino",
      "dns-packet",
    ],
  },
];

/**
 * The folders of rooms that have an order inside, one for each subject, lowest first: a file
 * imports only from its own folder and from those before it. What a lower folder needs of a higher
 * one it declares as an interface of its own. "" stands for files of the room itself.
 */
const orders: Readonly<Record<string, readonly string[]>> = {
  network: ["model", "kernel", "firewall", "bridge", "tc-redirect", "containers", "overlay"],
  hypervisor: [
    "",
    "qmp",
    "jail",
    "disks",
    "argv",
    "process",
    "nics",
    "console",
    "factory",
    "attach",
    "qemu",
  ],
  daemon: [
    "config",
    "store",
    "events",
    "listeners",
    "ipam",
    "published",
    "reconcile",
    "drift",
    "networks",
    "dhcp",
    "pods",
    "traffic",
    "dns",
    "verify",
    "containers",
    "overlays",
    "salvage",
    "api",
    "main",
  ],
};

/** Files in one folder, at most. */
const largestFolder = 25;

/** Folders that still have more. The numbers may only get smaller. */
const crowded: Readonly<Record<string, number>> = {
  api: 33,
  cli: 31,
  "cli/commands": 30,
  "guest-init/agent": 32,
  linux: 53,
  "linux/rtnetlink": 29,
};

/** Modules that belong to one place alone, wherever the table above would allow them. */
const reserved: readonly { readonly module: RegExp; readonly home: RegExp }[] = [
  { module: /^koffi$/, home: /^linux\// },
  { module: /^dns-packet$/, home: /^daemon\/dns\// },
  { module: /^execa$/, home: /^linux\/command\.ts$/ },
  { module: /^node:child_process$/, home: /^(?:linux|hypervisor)\// },
  { module: /^node:sqlite$/, home: /^daemon\// },
];

const importPattern =
  /^\s*(?:import|export)\s+(?:type\s+)?(?:[\w*{}\s,$]+\sfrom\s+)?["']([^"'\n]+)["']|\bimport\(\s*["']([^"'\n]+)["']/gm;

/** Every import of `file` that its room may not have, as a sentence. */
function violations(file: string): string[] {
  const rule = rules.find(({ room }) => file.startsWith(room));
  if (rule === undefined) return [];
  const found: string[] = [];
  for (const match of readFileSync(path.join(top, file), "utf8").matchAll(importPattern)) {
    const target = match[1] ?? match[2];
    if (target === undefined) continue;
    if (target.startsWith(".")) {
      const to = path.relative(top, path.resolve(top, path.dirname(file), target));
      const own =
        to.startsWith(rule.room) || rules.find(({ room }) => to.startsWith(room)) === rule;
      if (!own && !rule.rooms.some((room) => to.startsWith(room))) {
        found.push(`${file}: ${rule.room} may not import ${to}`);
      }
      if (isUpwards(file, to)) found.push(`${file}: ${path.dirname(file)} may not import ${to}`);
      continue;
    }
    const allowed =
      rule.packages === "any" ||
      (rule.packages !== "none" && rule.packages.some((name) => target.startsWith(name)));
    if (!allowed) found.push(`${file}: ${rule.room} may not import "${target}"`);
    const home = reserved.find(({ module }) => module.test(target))?.home;
    if (home !== undefined && !home.test(file))
      found.push(`${file}: "${target}" belongs to ${home.source}`);
  }
  return found;
}

/** The room of a file and its folder there ("" for none); undefined in a room without an order. */
function subjectOf(file: string): { readonly room: string; readonly folder: string } | undefined {
  const [room = "", ...rest] = file.split("/");
  return room in orders ? { room, folder: rest.length > 1 ? (rest[0] ?? "") : "" } : undefined;
}

/** Whether an import goes against the order of folders inside a room. */
function isUpwards(from: string, to: string): boolean {
  const [own, other] = [subjectOf(from), subjectOf(to)];
  if (own === undefined || own.room !== other?.room || own.folder === other.folder) return false;
  const order = orders[own.room] ?? [];
  return order.indexOf(other.folder) > order.indexOf(own.folder);
}

/**
 * Circles of imports, each as its files. Imports of types count as well; the linter's
 * `import/no-cycle` passes over them.
 */
function circlesOf(files: readonly string[]): string[][] {
  const targets = new Map(files.map((file) => [file, importsOf(file)]));
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const open: string[] = [];
  const circles: string[][] = [];
  // Strongly connected components (Tarjan 1972).
  const visit = (file: string): void => {
    order.set(file, order.size);
    lowest.set(file, order.get(file) as number);
    open.push(file);
    for (const target of targets.get(file) ?? []) {
      if (!targets.has(target)) continue;
      if (!order.has(target)) visit(target);
      if (open.includes(target))
        lowest.set(file, Math.min(lowest.get(file) as number, lowest.get(target) as number));
    }
    if (lowest.get(file) !== order.get(file)) return;
    const circle = open.splice(open.indexOf(file));
    if (circle.length > 1) circles.push(circle);
  };
  for (const file of files) if (!order.has(file)) visit(file);
  return circles;
}

/** The files of ours that a file imports, values or types. */
const importsOf = (file: string): string[] =>
  [...readFileSync(path.join(top, file), "utf8").matchAll(importPattern)]
    .map((match) => match[1] ?? match[2] ?? "")
    .filter((target) => target.startsWith("."))
    .map((target) => path.relative(top, path.resolve(top, path.dirname(file), target)));

/** Folders with more files than one subject has. */
function crowdedFolders(files: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const file of files) {
    const folder = path.dirname(file);
    counts.set(folder, (counts.get(folder) ?? 0) + 1);
  }
  return [...counts]
    .filter(([folder, count]) => count > (crowded[folder] ?? largestFolder))
    .map(
      ([folder, count]) =>
        `${folder}/: ${count} files, at most ${crowded[folder] ?? largestFolder}`,
    );
}

const files = globSync(
  "{core,ipallocator,linux,network,hypervisor,guest-init,api,etcd,overlay,cni,cli,daemon}/**/*.ts",
  { cwd: top },
).filter((file) => !/^(?:api|etcd)\/gen\//.test(file));
const wrong = files.flatMap(violations);
for (const file of files) {
  const subject = subjectOf(file);
  if (subject !== undefined && orders[subject.room]?.includes(subject.folder) === false)
    wrong.push(`${file}: its folder has no place in the order of ${subject.room}/`);
}
const circles = circlesOf(files);
for (const circle of circles) wrong.push(`a circle of imports: ${circle.join(", ")}`);
wrong.push(...crowdedFolders(files));
for (const line of wrong) console.error(line);
console.log(`${files.length} files, ${circles.length} circles, ${wrong.length} findings`);
process.exitCode = wrong.length === 0 ? 0 : 1;
