/**
 * Keeps the directions of import between modules (docs/architecture.md) and between the folders of
 * a module, and finds circles of imports and crowded folders. Prints each finding and exits 1. The
 * modules and what they may import are the table below.
 */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "..");

type Rule = {
  readonly module: string;
  readonly mayImport: readonly string[];
  readonly packages: "any" | "none" | readonly string[];
};

/**
 * First match wins, so the narrower path stands above the wider one. `node:` modules count as
 * packages.
 */
const rules: readonly Rule[] = [
  { module: "core/", mayImport: [], packages: "none" },
  { module: "ipallocator/", mayImport: ["core/"], packages: "none" },
  { module: "policy/", mayImport: ["core/"], packages: ["node:url"] },
  { module: "relay/", mayImport: ["core/", "linux/", "policy/"], packages: ["node:"] },
  { module: "linux/rtnetlink/", mayImport: ["core/"], packages: "none" },
  { module: "linux/", mayImport: ["core/"], packages: ["node:", "koffi", "execa", "pino"] },
  { module: "network/", mayImport: ["core/", "linux/", "policy/"], packages: ["node:"] },
  { module: "hypervisor/", mayImport: ["core/", "linux/"], packages: ["node:"] },
  { module: "guest-init/protocol/", mayImport: ["core/"], packages: "none" },
  {
    module: "guest-init/network/",
    mayImport: ["core/", "guest-init/protocol/", "linux/rtnetlink/"],
    packages: "none",
  },
  {
    module: "guest-init/agent/",
    mayImport: ["core/", "guest-init/protocol/", "guest-init/network/", "linux/rtnetlink/"],
    packages: "none",
  },
  {
    module: "guest-init/channel/",
    mayImport: ["core/", "linux/", "guest-init/protocol/", "guest-init/network/"],
    packages: ["node:"],
  },
  { module: "guest-init/image/", mayImport: ["core/", "linux/"], packages: ["node:"] },
  { module: "images/", mayImport: ["core/", "linux/"], packages: ["node:"] },
  {
    module: "api/",
    mayImport: ["core/"],
    packages: ["node:", "@bufbuild/protobuf", "@connectrpc/"],
  },
  { module: "overlay/", mayImport: ["core/", "etcd/", "kubernetes/"], packages: "none" },
  { module: "cni/protocol/", mayImport: ["core/"], packages: "none" },
  { module: "cni/plugin/", mayImport: ["core/", "cni/protocol/"], packages: "none" },
  {
    module: "cni/runtime/",
    mayImport: ["core/", "linux/", "cni/protocol/"],
    packages: ["node:"],
  },
  {
    module: "etcd/",
    mayImport: ["core/"],
    packages: ["node:", "@bufbuild/protobuf", "@connectrpc/"],
  },
  { module: "kubernetes/", mayImport: ["core/", "linux/"], packages: ["node:", "yaml"] },
  {
    module: "client/",
    mayImport: ["core/", "api/"],
    packages: ["node:", "@bufbuild/protobuf"],
  },
  { module: "ui/page/", mayImport: ["api/gen/"], packages: ["@bufbuild/protobuf", "preact"] },
  {
    module: "ui/server/",
    mayImport: ["core/", "api/"],
    packages: ["node:", "@bufbuild/protobuf"],
  },
  {
    module: "cli/",
    mayImport: [
      "core/",
      "api/",
      "client/",
      "images/",
      "ui/server/",
      // (podnet doctor decides about KVM as podnetd does.)
      "hypervisor/argv/accelerator.ts",
      "hypervisor/architecture.ts",
    ],
    packages: [
      "node:",
      "@bufbuild/protobuf",
      "@connectrpc/",
      "commander",
      "headers-polyfill",
      "tar",
      "yaml",
    ],
  },
  // The sources of `podnet verify` share no code with podnet, so that their checks are independent.
  { module: "daemon/verify/host-source.ts", mayImport: [], packages: ["node:", "netlink"] },
  { module: "daemon/verify/vm-source.ts", mayImport: [], packages: ["node:", "qemu-qmp"] },
  { module: "daemon/verify/rules-source", mayImport: [], packages: ["node:"] },
  { module: "daemon/verify/sockets-source.ts", mayImport: [], packages: ["node:"] },
  {
    module: "daemon/",
    mayImport: [
      "core/",
      "linux/",
      "ipallocator/",
      "policy/",
      "relay/",
      "network/",
      "hypervisor/",
      "guest-init/",
      "images/",
      "api/",
      "etcd/",
      "kubernetes/",
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
      "headers-polyfill",
      "prom-client",
      "pino",
      "dns-packet",
    ],
  },
];

/**
 * The folders of modules that have an order inside, one for each subject, lowest first: a file
 * imports only from its own folder and from those before it. What a lower folder needs of a higher
 * one it declares as an interface of its own. "" stands for files of the module itself.
 */
const orders: Readonly<Record<string, readonly string[]>> = {
  network: [
    "model",
    "kernel",
    "firewall",
    "rates",
    "bridge",
    "tc-redirect",
    "containers",
    "overlay",
  ],
  hypervisor: [
    "",
    "qmp",
    "jail",
    "disks",
    "argv",
    "process",
    "shares",
    "nics",
    "hot-disks",
    "growth",
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
    "images",
    "pods",
    "traffic",
    "dns",
    "verify",
    "containers",
    "policies",
    "services",
    "overlays",
    "trace",
    "telemetry",
    "salvage",
    "api",
    "cri",
    "hyperd",
    "main",
  ],
};

/** Files in one folder, at most. */
const largestFolder = 25;

/** Modules that belong to one place alone, wherever the table above would allow them. */
const reserved: readonly { readonly module: RegExp; readonly home: RegExp }[] = [
  { module: /^koffi$/, home: /^linux\// },
  { module: /^dns-packet$/, home: /^daemon\/dns\// },
  { module: /^execa$/, home: /^linux\/processes\/command\.ts$/ },
  // (The command podnet starts without execa, which its snapshot would hold.)
  {
    module: /^node:child_process$/,
    home: /^(?:linux|hypervisor)\/|^cli\/doctor\/this-host\.ts$/,
  },
  { module: /^node:sqlite$/, home: /^daemon\// },
];

const importPattern =
  /^\s*(?:import|export)\s+(?:type\s+)?(?:[\w*{}\s,$]+\sfrom\s+)?["']([^"'\n]+)["']|\bimport\(\s*["']([^"'\n]+)["']/gm;

/** Every import of `file` that its module may not have, as a sentence. */
function violations(file: string): string[] {
  const rule = rules.find(({ module }) => file.startsWith(module));
  if (rule === undefined) return [];
  const found: string[] = [];
  for (const match of readFileSync(path.join(top, file), "utf8").matchAll(importPattern)) {
    const target = match[1] ?? match[2];
    if (target === undefined) continue;
    if (target.startsWith(".")) {
      const to = path.relative(top, path.resolve(top, path.dirname(file), target));
      const own =
        to.startsWith(rule.module) || rules.find(({ module }) => to.startsWith(module)) === rule;
      if (!own && !rule.mayImport.some((module) => to.startsWith(module))) {
        found.push(`${file}: ${rule.module} may not import ${to}`);
      }
      if (isUpwards(file, to)) found.push(`${file}: ${path.dirname(file)} may not import ${to}`);
      continue;
    }
    const allowed =
      rule.packages === "any" ||
      (rule.packages !== "none" && rule.packages.some((name) => target.startsWith(name)));
    if (!allowed) found.push(`${file}: ${rule.module} may not import "${target}"`);
    const home = reserved.find(({ module }) => module.test(target))?.home;
    if (home !== undefined && !home.test(file))
      found.push(`${file}: "${target}" belongs to ${home.source}`);
  }
  return found;
}

/** The module of a file and its folder there ("" for none); undefined without an order there. */
function subjectOf(file: string): { readonly module: string; readonly folder: string } | undefined {
  const [module = "", ...rest] = file.split("/");
  return module in orders ? { module, folder: rest.length > 1 ? (rest[0] ?? "") : "" } : undefined;
}

/** Whether an import goes against the order of folders inside a module. */
function isUpwards(from: string, to: string): boolean {
  const [own, other] = [subjectOf(from), subjectOf(to)];
  if (own === undefined || own.module !== other?.module || own.folder === other.folder)
    return false;
  const order = orders[own.module] ?? [];
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
    .filter(([, count]) => count > largestFolder)
    .map(([folder, count]) => `${folder}/: ${count} files, at most ${largestFolder}`);
}

const files = globSync(
  "{core,ipallocator,policy,relay,linux,network,hypervisor,guest-init,images,api,etcd,kubernetes,overlay,cni,client,cli,daemon,ui}/**/*.{ts,tsx}",
  { cwd: top },
).filter((file) => !/^(?:api|etcd)\/gen\//.test(file));
const wrong = files.flatMap(violations);
for (const file of files) {
  const subject = subjectOf(file);
  if (subject !== undefined && orders[subject.module]?.includes(subject.folder) === false)
    wrong.push(`${file}: its folder has no place in the order of ${subject.module}/`);
}
const circles = circlesOf(files);
for (const circle of circles) wrong.push(`a circle of imports: ${circle.join(", ")}`);
wrong.push(...crowdedFolders(files));
for (const line of wrong) console.error(line);
console.log(`${files.length} files, ${circles.length} circles, ${wrong.length} findings`);
process.exitCode = wrong.length === 0 ? 0 : 1;
