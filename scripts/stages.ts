import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "..");

/** A part of the tests that runs by itself. */
export interface Stage {
  readonly name: string;
  readonly files: string;
  /**
   * Files that only a complete run has time for: long boots of images that a short one meets in
   * another way.
   */
  readonly completeOnly?: readonly string[];
  /**
   * What takes a while to set up, as options of scripts/setup, with the files that need it: a
   * Debian image, a browser, Prometheus, Go, generators for Python.
   */
  readonly setUp?: Readonly<
    Partial<
      Record<"--debian" | "--browser" | "--prometheus" | "--go" | "--python", readonly string[]>
    >
  >;
  /**
   * Warm minutes that its files take in all; going over is reported, not failed: the machines are
   * noisy.
   */
  readonly budgetMinutes: number;
  /**
   * Cores that a file keeps busy: 1 for one that computes or boots machines, less for one that
   * mostly waits.
   */
  readonly weight: number;
  /** Seconds that a file takes, about. Short files share a run of ava. */
  readonly seconds: number;
  /**
   * Its files that take longer, by the end of their paths, with their seconds. The longest of all
   * stages begin first.
   */
  readonly long?: Readonly<Record<string, number>>;
  /**
   * A short run of all stages takes the files whose turn is today, and each has its turn within
   * some days (scripts/turns.ts): all of the stage's files, its `long` ones, or those whose paths
   * end so. The others run each time.
   */
  readonly takesTurns?: true | "long" | readonly string[];
  /**
   * Its short files run many in one process, and not in one each, but for those whose paths end so:
   * what they change or measure is the process itself (docs/decisions/0157).
   */
  readonly ownProcess?: readonly string[];
  /** Its files use one place and run one at a time. */
  readonly oneAtATime?: true;
  /** Its files run when nothing else does. */
  readonly exclusive?: true;
  readonly timeoutSeconds: number;
  /**
   * What a failure here may mean is that the machine was busy elsewhere: it is looked at once more
   * (docs/decisions/0036), unless it comes of a search or of kills, where a failure seen once is a
   * defect found.
   */
  readonly secondLook?: true;
  /**
   * A search: a short run draws from the date, so that each day looks elsewhere
   * (docs/decisions/0075).
   */
  readonly drawsByDay?: true;
  /**
   * Its tests write a closing line, such as `crash points=12 …`, to build/summary/NAME; without one
   * it has failed.
   */
  readonly closes?: true;
}

const inVm = (name: string): string => `test/vm/${name}.test.ts`;
const inDocs = (name: string): string => `test/docs/${name}.test.ts`;

export const stages: readonly Stage[] = [
  {
    name: "static",
    files: "test/static/**/*.test.ts",
    budgetMinutes: 0.5,
    weight: 1,
    seconds: 2,
    long: { static: 12 },
    timeoutSeconds: 120,
  },
  {
    name: "unit",
    files: "test/unit/**/*.test.ts",
    budgetMinutes: 2.5,
    weight: 0.75,
    seconds: 0.7,
    long: {
      "etcd/broken": 24,
      "daemon/api/access": 8,
      "scripts/run-stage": 7,
      "daemon/api/limits": 6,
      "daemon/containers/teardown-queue": 5,
      "daemon/api/sessions": 5,
      "daemon/containers/installation": 5,
      "daemon/api/server": 4,
      "daemon/api/early-answers": 4,
      "daemon/api/fairness": 4,
      "daemon/api/handshakes": 4,
      "daemon/containers/macs": 4,
      "daemon/main/command": 3,
      "overlay/histories": 3,
      "scripts/programs": 3,
      "scripts/snapshot": 3,
    },
    takesTurns: "long",
    // It took 5 minutes after 80 other files, and takes 2 s by itself.
    ownProcess: ["daemon/api/floods"],
    timeoutSeconds: 60,
  },
  {
    name: "planted",
    files: "test/planted/**/*.test.ts",
    budgetMinutes: 1,
    weight: 1.5,
    seconds: 30,
    timeoutSeconds: 150,
    drawsByDay: true,
  },
  {
    name: "fuzz",
    files: "test/fuzz/**/*.test.ts",
    budgetMinutes: 2.5,
    weight: 1,
    seconds: 12,
    long: { "api-names": 36, "image-layers": 30, "parsers-policy": 30 },
    // What these two search changes seldom.
    takesTurns: ["api-names", "image-layers"],
    timeoutSeconds: 180,
    drawsByDay: true,
    closes: true,
  },
  {
    name: "sim",
    files: "test/{sim,model}/**/*.test.ts",
    budgetMinutes: 1.5,
    weight: 2,
    seconds: 30,
    timeoutSeconds: 180,
    drawsByDay: true,
    closes: true,
  },
  {
    name: "kernel",
    files: "test/kernel/**/*.test.ts",
    budgetMinutes: 8,
    weight: 0.5,
    seconds: 5,
    long: {
      "firewall-policy": 55,
      relay: 46,
      "firewall-translated": 42,
      "firewall-ports": 35,
      "daemon-host": 34,
      "daemon-networks-restart": 45,
      "firewall-switch": 27,
      "firewall-guard": 45,
      "overlay-firewall": 24,
      dhcp: 22,
      "fake-kernel": 20,
      "daemon-down": 20,
      "firewall-networks": 27,
      "network-host": 31,
      "daemon-networks": 16,
      "port-guard": 30,
      rates: 29,
      "flow-trace": 28,
      "firewall-host": 25,
      "network-traffic": 15,
      "netns-join": 13,
    },
    takesTurns: true,
    timeoutSeconds: 120,
    secondLook: true,
  },
  {
    name: "standin",
    files: "test/vm/standin-*.test.ts",
    budgetMinutes: 4,
    weight: 0.5,
    seconds: 6,
    long: {
      "standin-together": 98,
      "standin-cni": 40,
      "standin-ports": 27,
      "standin-apply": 20,
      "standin-telemetry": 8,
      "standin-bad": 18,
      "standin-running": 17,
      "standin-hyperd": 14,
      "standin-ports-killed": 16,
      "standin-salvage": 14,
    },
    takesTurns: true,
    timeoutSeconds: 240,
    secondLook: true,
  },
  {
    name: "vm",
    files: "test/vm/!(standin-)*.test.ts",
    completeOnly: [
      "arm64",
      "attach-killed",
      "cloud-image",
      "daemon-recovery",
      "debian-disk",
      "disks-own",
      "factory-killed",
      "image-large",
    ].map(inVm),
    setUp: { "--debian": ["debian-agent"].map(inVm), "--browser": ["page"].map(inVm) },
    budgetMinutes: 16,
    weight: 0.67,
    seconds: 12,
    long: {
      cri: 21,
      "cri-containers": 40,
      "together-pods": 118,
      "together-machines": 118,
      shares: 50,
      "debian-agent": 43,
      installed: 110,
      "installed-unit": 200,
      "client-package": 25,
      page: 25,
      "image-pool": 25,
      hyperd: 60,
      hyperstart: 40,
      "daemon-state": 37,
      "daemon-lifecycle": 36,
      "daemon-unprivileged": 36,
      attach: 34,
      "attach-ends": 32,
      "jail-privileges": 30,
      networks: 27,
      lifecycle: 26,
      "daemon-drift": 26,
      "hypervisor-guest": 24,
      factory: 23,
      "guest-containers": 15,
      "guest-container-limits": 20,
      names: 22,
      "factory-daemon": 22,
    },
    takesTurns: true,
    timeoutSeconds: 240,
    secondLook: true,
  },
  {
    name: "crash",
    files: "test/crash/**/*.test.ts",
    budgetMinutes: 5,
    weight: 1.25,
    seconds: 10,
    long: { matrix: 100, overlay: 40, "on-containers": 40, pool: 40, strace: 30 },
    // Pods are killed each day. What is killed of the rest has its turn.
    takesTurns: ["overlay", "on-containers", "pool", "strace"],
    timeoutSeconds: 300,
    drawsByDay: true,
    closes: true,
  },
  {
    name: "soak",
    files: "test/soak/**/*.test.ts",
    budgetMinutes: 0.75,
    weight: 0.75,
    seconds: 34,
    takesTurns: true,
    timeoutSeconds: 120,
    closes: true,
  },
  {
    name: "overlay",
    files: "test/overlay/**/*.test.ts",
    budgetMinutes: 5,
    weight: 0.67,
    seconds: 8,
    long: {
      "kube-hosts": 35,
      "daemon-pods": 30,
      "hosts-anew": 28,
      "hosts-as-senders": 27,
      "daemon-join": 25,
      "hosts-joined": 24,
      "daemon-udp": 17,
      "hosts-odd": 17,
      "etcd-follow": 15,
    },
    takesTurns: true,
    timeoutSeconds: 180,
    secondLook: true,
  },
  {
    name: "cni",
    files: "test/cni/**/*.test.ts",
    budgetMinutes: 4,
    weight: 1,
    seconds: 10,
    long: { "together-containers": 55, "together-plugins": 30 },
    takesTurns: true,
    timeoutSeconds: 180,
    secondLook: true,
  },
  {
    name: "docs",
    files: "test/docs/**/*.test.ts",
    completeOnly: ["images", "go-client", "python-client"].map(inDocs),
    setUp: {
      "--prometheus": ["test/docs/monitoring.test.ts"],
      "--go": ["test/docs/go-client.test.ts"],
      "--python": ["test/docs/python-client.test.ts"],
    },
    budgetMinutes: 2,
    weight: 1,
    seconds: 3,
    long: {
      docs: 110,
      run: 100,
      profile: 45,
      quickstart: 40,
      monitoring: 15,
      "container-images": 15,
    },
    takesTurns: true,
    timeoutSeconds: 300,
    // The quickstart's lab is in build/lab.
    oneAtATime: true,
    secondLook: true,
  },
];

/** Some files of one stage, which one run of ava goes through. */
export interface Batch {
  readonly files: readonly string[];
  /** The files run in one process. */
  readonly oneProcess: boolean;
  readonly seconds: number;
  readonly weight: number;
}

/** Files that take no longer in all share a run of ava: to start one takes half a second. */
const batchSeconds = 25;

const isCalled = (file: string, name: string): boolean => file.endsWith(`/${name}.test.ts`);

/** How long a file of a stage takes, about. */
export const secondsOf = ({ seconds, long = {} }: Stage, file: string): number =>
  Object.entries(long).find(([name]) => isCalled(file, name))?.[1] ?? seconds;

/** Whether a short run takes a file of the stage on some days only. */
export function hasTurn({ takesTurns = [], long = {} }: Stage, file: string): boolean {
  if (takesTurns === true) return true;
  const names = takesTurns === "long" ? Object.keys(long) : takesTurns;
  return names.some((name) => isCalled(file, name));
}

/** Whether a file of the stage runs in one process with others. */
export function sharesProcess({ ownProcess, long = {} }: Stage, file: string): boolean {
  if (ownProcess === undefined) return false;
  return ![...ownProcess, ...Object.keys(long)].some((name) => isCalled(file, name));
}

/** The files in batches, the longest first, those that share a process apart from others. */
export function batchesOf(stage: Stage, files: readonly string[]): readonly Batch[] {
  const { weight } = stage;
  const batches: Batch[] = [];
  /** The batch that has room, of each kind. */
  const last = new Map<boolean, Batch>();
  for (const file of files.toSorted((a, b) => secondsOf(stage, b) - secondsOf(stage, a))) {
    const oneProcess = sharesProcess(stage, file);
    const took = secondsOf(stage, file);
    const open = last.get(oneProcess);
    const hasRoom = open !== undefined && open.seconds + took <= batchSeconds;
    const batch: Batch = hasRoom
      ? { ...open, files: [...open.files, file], seconds: open.seconds + took }
      : { files: [file], oneProcess, seconds: took, weight };
    if (hasRoom) batches[batches.indexOf(open)] = batch;
    else batches.push(batch);
    last.set(oneProcess, batch);
  }
  return batches;
}

/**
 * The test files that run with `file`: itself, and what it imports if it is one that lets several
 * share a rig (`*together*.test.ts`).
 */
export function runWith(file: string): readonly string[] {
  if (!path.basename(file).includes("together")) return [file];
  const imports = readFileSync(path.join(top, file), "utf8").matchAll(/^import "(.+)";$/gm);
  return [file, ...[...imports].map(([, name = ""]) => path.join(path.dirname(file), name))];
}

/** The stage's files of a complete or a short run; what runs with another file is left out. */
export function filesOf({ files, completeOnly = [] }: Stage, full: boolean): readonly string[] {
  const there = globSync(files, { cwd: top });
  const imported = new Set(there.flatMap((file) => runWith(file).slice(1)));
  return there
    .filter((file) => (full || !completeOnly.includes(file)) && !imported.has(file))
    .sort();
}
