/**
 * Keeps the directions of import between rooms (docs/architecture.md): prints each import that goes
 * against them and exits 1. The rooms and what they may import are the table below.
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
 * The folders of `daemon/`, one for each subject, lowest first: a file imports only from its own
 * folder and from those before it. What a lower folder needs of a higher one it declares as an
 * interface of its own.
 */
const daemonOrder = [
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
];

/** Imports that still go against that order. The list may only get shorter. */
const againstDaemonOrder = new Set<string>([]);

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

/** Those of the list that were not met yet. */
const upwards = new Set(againstDaemonOrder);

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
      const pair = `${file} ${to}`;
      if (isUpwards(file, to) && !upwards.delete(pair) && !againstDaemonOrder.has(pair))
        found.push(`${file}: daemon/${subjectOf(file)} may not import ${to}`);
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

/** The folder of `daemon/` that a file is in; undefined elsewhere. */
const subjectOf = (file: string): string | undefined => /^daemon\/([^/]+)\//.exec(file)?.[1];

/** Whether an import inside `daemon/` goes against the order of its folders. */
function isUpwards(from: string, to: string): boolean {
  const [own, other] = [subjectOf(from), subjectOf(to)];
  if (own === undefined || other === undefined || own === other) return false;
  return daemonOrder.indexOf(other) > daemonOrder.indexOf(own);
}

const files = globSync(
  "{core,ipallocator,linux,network,hypervisor,guest-init,api,etcd,overlay,cni,cli,daemon}/**/*.ts",
  { cwd: top },
);
const wrong = files.filter((file) => !/^(?:api|etcd)\/gen\//.test(file)).flatMap(violations);
for (const pair of upwards)
  wrong.push(`${pair}: no longer an import against the order, take it off the list`);
for (const file of files)
  if (subjectOf(file) !== undefined && !daemonOrder.includes(subjectOf(file) as string))
    wrong.push(`${file}: its folder has no place in the order of daemon/`);
for (const line of wrong) console.error(line);
console.log(`${files.length} files, ${wrong.length} imports against the rooms' directions`);
process.exitCode = wrong.length === 0 ? 0 : 1;
