import { deepStrictEqual } from "node:assert";
import { consoleTailText } from "../../../daemon/pods/guest/console-tail.ts";
import { hasCapability } from "../../../daemon/main/preflight.ts";
import { loopbackAddresses } from "../../../daemon/verify/loopback-addresses.ts";
import {
  parseGuardReport,
  parseHostReport,
  parseRulesReport,
  parseSocketsReport,
  parseVmReport,
} from "../../../daemon/verify/source-reports.ts";
import { parseOptions } from "../../../guest-init/agent/options.ts";
import { identify } from "../../../guest-init/agent/users.ts";
import { findId } from "../../../linux/processes/accounts.ts";
import { parseCpuMs, parseResidentKib, parseStat } from "../../../linux/processes/proc.ts";
import { hasVirtualisation } from "../../../hypervisor/argv/accelerator.ts";
import { altNames } from "../../../daemon/listeners/peer.ts";
import { missingCapabilities } from "../../../hypervisor/jail/capabilities.ts";
import { parseCgroupMounts } from "../../../hypervisor/jail/cgroup-layout.ts";
import { parseCpuStat, parseHeldMemory } from "../../../hypervisor/jail/cgroup-usage.ts";
import { parseReport } from "../../../hypervisor/jail/report.ts";
import { parseGeneration } from "../../../linux/nftables/nftables-generation.ts";
import { isMapped } from "../../../hypervisor/jail/uids.ts";
import { lastLine } from "../../../hypervisor/process/run-dir.ts";
import {
  networkMark,
  ownedBy,
  parseOwner,
  podMark,
  podRuleMark,
  publishedMark,
} from "../../../network/model/ownership.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

/** NFT_MSG_NEWGEN with one attribute of a size and type. */
function generation(length: number, size: number, type: number): Uint8Array {
  const bytes = new Uint8Array(length);
  const view = new DataView(bytes.buffer);
  view.setUint16(4, (10 << 8) | 15, true);
  view.setUint16(20, size, true);
  view.setUint16(22, type, true);
  return bytes;
}

/** A number that can be shown, or none. */
function amount(value: number | undefined): void {
  if (value !== undefined && !(Number.isFinite(value) && value >= 0)) throw new Error(`${value}`);
}

/** What the kernel, its tools and our own launcher say of processes, users, mounts and callers. */
const processFiles: Target = {
  name: "proc-text",
  files: [
    "hypervisor/argv/accelerator.ts",
    "daemon/main/preflight.ts",
    "linux/processes/proc.ts",
    "linux/processes/accounts.ts",
    "hypervisor/jail/uids.ts",
    "hypervisor/jail/capabilities.ts",
    "hypervisor/jail/cgroup-layout.ts",
    "hypervisor/jail/cgroup-usage.ts",
    "hypervisor/jail/report.ts",
    "linux/nftables/nftables-generation.ts",
    "daemon/listeners/peer.ts",
  ],
  only: [
    "missingCapabilities",
    "maskOf",
    "parseCgroupMounts",
    "parseReport",
    "parseGeneration",
    "altNames",
    "unquoted",
    "isMapped",
    "findId",
    "hasVirtualisation",
    "hasCapability",
    "parseStat",
    "parseCpuMs",
    "parseResidentKib",
    "parseCpuStat",
    "parseHeldMemory",
  ],
  seeds: [
    chosen(0, utf8("processor : 0\nflags\t\t: fpu vmx sse\nprocessor : 1\nflags : fpu svm\n")),
    chosen(0, utf8("flags : fpu\n")),
    chosen(1, utf8("Name:\tnode\nCapEff:\t000001ffffffffff\n")),
    chosen(1, utf8("CapEff:\t0\n")),
    chosen(2, utf8("1 (a (b) c) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12 99\n")),
    chosen(2, utf8("1 (x) S 0 1 1 0 -1 4194560 1 2 3 4 -5 6 7 8 20 0 1 0 12 99\n")),
    chosen(3, utf8("Name:\ta\nVmRSS:\t    1234 kB\n")),
    chosen(3, utf8("Name:\tkthreadd\n")),
    chosen(4, utf8("root:x:0:\nwheel:x:10:a\n")),
    chosen(4, utf8("wheel:x::\n")),
    chosen(4, utf8("wheel\n")),
    chosen(5, utf8("         0          0 4294967295\n")),
    chosen(5, utf8("0 1000 1\n100000 1 5\n\n")),
    chosen(6, utf8("Uid:\t0\t0\t0\t0\nCapEff:\t01\nCapBnd:\t01\nCapAmb:\t00\n")),
    chosen(6, utf8("Uid:\t1\t1\t1\t1\nCapEff:\tff\n")),
    chosen(
      7,
      utf8(
        "30 25 0:26 / /sys/fs/cgroup\\040x rw - cgroup cgroup rw,memory\n31 25 0:27 / /u rw - cgroup2 none rw\n32 25 0:28 / /p rw - cgroup x rw,pids\n33 1\n",
      ),
    ),
    chosen(8, utf8("pid 77\nready\n")),
    chosen(8, utf8("pid 77\nready\nerror no such file\n")),
    chosen(8, utf8("ready\n")),
    chosen(9, generation(28, 8, 1)),
    chosen(9, generation(28, 8, 2)),
    chosen(9, generation(28, 0, 1)),
    chosen(9, new Uint8Array(5)),
    chosen(9, new Uint8Array(30)),
    chosen(
      10,
      utf8('DNS:a.example, URI:spiffe://x/y, email:a@b, DNS:"with, comma", IP Address:1.2.3.4'),
    ),
    chosen(11, utf8("usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n")),
    chosen(11, utf8("usage_usec 99999999999999999999\n")),
    chosen(12, utf8("1048576\nanon 4096\ninactive_file 8192\nactive_file 0\n")),
    chosen(12, utf8("4096\ninactive_file 8192\n")),
    chosen(12, utf8("max\n")),
  ],
  words: ["flags", ":", " vmx", " svm", "\n", "CapEff:", "ffff"],
  run: choosing([
    (bytes) => hasVirtualisation(textOf(bytes)),
    (bytes) => hasCapability(textOf(bytes), 12n),
    (bytes) => amount(parseCpuMs(parseStat(textOf(bytes)))),
    (bytes) => parseResidentKib(textOf(bytes)),
    (bytes) => {
      const text = textOf(bytes);
      const id = findId(text, "wheel");
      if (id !== undefined && !(Number.isInteger(id) && /\d/.test(text)))
        throw new Error(`Group ${id}`);
    },
    (bytes) => isMapped({ first: 1000, last: 2000 }, textOf(bytes)),
    (bytes) => missingCapabilities(textOf(bytes)),
    (bytes) => parseCgroupMounts(textOf(bytes)),
    (bytes) => parseReport(textOf(bytes)),
    (bytes) => parseGeneration(bytes),
    (bytes) => altNames(textOf(bytes)),
    (bytes) => amount(parseCpuStat(textOf(bytes))),
    (bytes) => {
      const [usage = "", ...stat] = textOf(bytes).split("\n");
      amount(parseHeldMemory(usage, stat.join("\n")));
    },
  ]),
};

const isId = (value: number): boolean =>
  Number.isInteger(value) && value >= 0 && value < 2 ** 32 - 1;
const accounts = {
  user: "app",
  group: "wheel",
  more: ["7", "app"],
  passwd:
    "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\nshort:x:5\nodd:x::x\n",
  groups: "root:x:0:\nwheel:x:10:app\napp:x:1000:\nodd:x:\n",
};

const users: Target = {
  name: "guest-accounts",
  files: ["guest-init/agent/users.ts"],
  seeds: [
    accounts,
    { ...accounts, user: "1000" },
    { ...accounts, user: "4294967296" },
    { ...accounts, user: "77", group: undefined },
    { ...accounts, user: undefined, group: "12" },
    { ...accounts, user: "short" },
    { ...accounts, user: "odd" },
    { ...accounts, group: "odd" },
    { ...accounts, user: "nobody" },
    { ...accounts, group: "nobody" },
  ].map(json),
  words: [
    "root",
    "app",
    "odd",
    ":",
    "::",
    "\n",
    "0",
    "4294967295",
    "4294967296",
    "9999999999",
    "-1",
    "x",
  ],
  run: (bytes) => {
    const input = fields(bytes);
    const text = (key: string): string => String(input[key] ?? "");
    const more = input["more"];
    const identity = valueOf(["INVALID_ARGUMENT"], () =>
      identify(
        {
          ...(input["user"] === undefined ? {} : { user: text("user") }),
          ...(input["group"] === undefined ? {} : { group: text("group") }),
          additionalGroups: Array.isArray(more) ? more.map(String) : [],
        },
        { passwd: () => text("passwd"), group: () => text("groups") },
      ),
    );
    if (identity === undefined) return;
    for (const id of [identity.uid, identity.gid, ...identity.groups])
      if (!isId(id)) throw new Error(`A process would run as ${id}`);
  },
};

type Fields = Readonly<Record<string, string | readonly string[] | undefined>>;

function fields(bytes: Uint8Array): Fields {
  try {
    return Object(JSON.parse(textOf(bytes))) as Fields;
  } catch {
    return { passwd: textOf(bytes), user: "app" };
  }
}

/** The kernel's command line reaches PID 1 as arguments. */
const agentOptions: Target = {
  name: "agent-options",
  files: ["guest-init/agent/options.ts"],
  seeds: [
    "--channel a --tty b",
    "--version",
    "--channel",
    "--bogus",
    "quiet ro --tty /dev/x",
  ].flatMap((line) => [0, 1].map((init) => chosen(init, utf8(line)))),
  words: ["--channel", "--tty", "--version", " "],
  run: choosing(
    [false, true].map((isInit) => (bytes: Uint8Array) => {
      const parsed = parseOptions(textOf(bytes).split(" "), isInit, { control: "c", tty: "t" });
      if (isInit && parsed.kind === "usage") throw new Error("PID 1 would not start");
      if (parsed.kind === "run" && (parsed.channel === "" || parsed.tty === ""))
        throw new Error("An empty name");
    }),
  ),
};

/** What a guest or QEMU wrote last, as it is shown to people. */
const lastTexts: Target = {
  name: "last-words",
  files: ["daemon/pods/guest/console-tail.ts", "hypervisor/process/run-dir.ts"],
  only: ["consoleTailText", "lastLine"],
  seeds: [
    chosen(0, utf8("boot\r\n\u001b[31mKernel panic - not syncing\u001b[0m\r\nend\n")),
    chosen(0, utf8("login:\n\n")),
    chosen(1, utf8("warning\nqemu-system-x86_64: -netdev: no\u001b[2J")),
  ],
  words: ["Kernel panic", "\u001b[", "\u009b", "\n", "\u202e", "qemu-system-x86_64: "],
  run: choosing([
    (bytes) => checkShown(consoleTailText(bytes).replaceAll("\n", " "), 600),
    (bytes) => checkShown(lastLine(textOf(bytes)), 80),
  ]),
};

function checkShown(text: string, limit: number): void {
  if (text.length > limit || /[\u0000-\u001f\u007f-\u009f\u202e]/.test(text))
    throw new Error(JSON.stringify(text));
}

/** Aliases of links and comments of rules, which others write too. */
const marks: Target = {
  name: "marks",
  files: ["network/model/ownership.ts"],
  except: ["chainMark", "overlayMark", "isPlugged", "podIfb", "attachmentIfb"],
  seeds: [
    "podnet:network:default",
    "podnet:attachment:17",
    "podnet:pod:abcdefghijkl:0",
    "podnet:pod:abcdefghijkl",
    "podnet:chain:HYPER",
    "podnet:overlay:default",
    "podnet:",
    "other",
  ].map(utf8),
  words: [
    "podnet:",
    "pod:",
    "network:",
    "chain:",
    "overlay:",
    "attachment:",
    ":",
    "0",
    "99999",
    "\n",
  ],
  run: (bytes) => {
    deepStrictEqual(parseOwner(undefined), undefined);
    const owner = parseOwner(textOf(bytes));
    if (owner === undefined) return;
    deepStrictEqual(ownedBy(textOf(bytes), owner.kind, owner.key), true);
    if (owner.kind === "network") deepStrictEqual(parseOwner(networkMark(owner.key)), owner);
    const { kind, key, index } = owner;
    if (kind === "pod" || kind === "attachment")
      deepStrictEqual(parseOwner(publishedMark({ kind, key })), { kind, key });
    if (kind !== "pod") return;
    const again = index === undefined ? podRuleMark(key) : podMark(key, index);
    deepStrictEqual(parseOwner(again), owner);
  },
};

const hostSaid = {
  links: [
    {
      name: "hyper0",
      index: 2,
      up: true,
      mtu: 1500,
      group: 73,
      alias: "a",
      mac: "m",
      master: "b",
      kind: "bridge",
      isolated: true,
    },
  ],
  addresses: [{ link: "hyper0", address: "10.0.0.1", length: 24 }],
  routes: [{ destination: "10.0.0.0/24", link: "hyper0", table: 254 }],
  queues: [{ link: "tap", bytesPerSecond: 1000, leastCost: 0 }],
  redirects: [{ link: "tap", to: "ifb" }],
};
const guardSaid = {
  asked: true,
  ports: [
    { link: "tap", macs: ["m"], addresses: ["10.0.0.2"], senders: ["m/10.0.0.2"], sets: ["any6"] },
  ],
  directions: ["egress4"],
  holders: [{ direction: "egress4", bridge: "hyper0", address: "10.0.0.2", rules: 2 }],
};
const vmSaid = {
  status: "running",
  nics: [{ id: "n", driver: "virtio-net-pci", mac: "m", netdev: "d", address: "a" }],
  pci: [{ id: "n", bus: 1, slot: 2 }],
};

const rulesSaid = {
  translations: [
    { protocol: "tcp", hostIp: "h", first: 1, last: 2, podIp: "p", podPort: 3 },
    { protocol: "udp", first: 1, last: 1, podIp: "p", podPort: 3 },
  ],
  opened: [
    { protocol: "tcp", podIp: "p", first: 1, last: 2 },
    { protocol: "tcp", podIp: "p", first: 1, last: 2, mark: 8, bridge: "b" },
  ],
  accepted: [{ mark: 8 }, { mark: 8, bridge: "b" }],
  hairpins: [{ subnet: "s", bridge: "b", podIp: "p" }],
};
const socketsSaid = { sockets: [{ protocol: "tcp", ip: "i", port: 1, own: true }] };

/** What the sources of `podnet verify` print. */
const report: Target = {
  name: "source-reports",
  files: ["daemon/verify/source-reports.ts", "daemon/verify/loopback-addresses.ts"],
  seeds: [
    chosen(0, json(hostSaid)),
    chosen(1, json(vmSaid)),
    chosen(2, json(rulesSaid)),
    chosen(3, json(socketsSaid)),
    chosen(4, utf8("1: lo    inet 10.7.0.1/32 scope global lo\n1: lo    inet6 ::1/128")),
    chosen(0, utf8("no")),
    chosen(5, json(guardSaid)),
  ],
  words: ["links", "addresses", "routes", "status", "nics", "pci", "index", "up"],
  run: choosing([
    (bytes) => valueOf(["COMMAND_FAILED"], () => parseHostReport(textOf(bytes))),
    (bytes) => valueOf(["COMMAND_FAILED"], () => parseVmReport(textOf(bytes))),
    (bytes) => valueOf(["COMMAND_FAILED"], () => parseRulesReport(textOf(bytes))),
    (bytes) => valueOf(["COMMAND_FAILED"], () => parseSocketsReport(textOf(bytes))),
    (bytes) => valueOf([], () => loopbackAddresses(textOf(bytes))),
    (bytes) => valueOf(["COMMAND_FAILED"], () => parseGuardReport(textOf(bytes))),
  ]),
};

export const hostFiles: readonly Target[] = [
  processFiles,
  users,
  agentOptions,
  lastTexts,
  marks,
  report,
];
