import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { parseMac } from "../../../../core/address.ts";
import { parseIfName, parsePodId } from "../../../../core/names.ts";
import type { NicPlan, VmPlan } from "../../../../hypervisor/driver.ts";
import { withoutIdentity, templateKey } from "../../../../hypervisor/factory/key.ts";
import { qemuArgv } from "../../../../hypervisor/argv/argv.ts";
import type { Template } from "../../../../hypervisor/factory/template.ts";
import { Templates } from "../../../../hypervisor/factory/templates.ts";

const never = new AbortController().signal;

/** Templates that are no machines, and what became of them. */
class Built {
  readonly freed: string[] = [];
  readonly begun: string[] = [];

  make(name: string): Template {
    // Nothing here looks into it.
    const unused = {} as Template["memory"];
    const parts = { memory: unused, state: unused, hasNic: false, guest: {} };
    return { ...parts, [Symbol.dispose]: () => this.freed.push(name) };
  }

  build(name: string): (signal: AbortSignal) => Promise<Template> {
    return () => {
      this.begun.push(name);
      return Promise.resolve(this.make(name));
    };
  }
}

const plan: VmPlan = {
  podId: parsePodId("abcdefghijkl"),
  vcpu: 1,
  memoryMib: 128,
  kernel: "",
  initrd: "",
  cmdline: "",
  disks: [],
  factory: "template",
  runDir: "/run/podnet/pods/abcdefghijkl",
};

const nic: NicPlan = {
  nicId: "nic0",
  netdevId: "net0",
  fdName: "fd",
  tap: parseIfName("tap0"),
  mac: parseMac("52:54:00:00:00:01"),
  slot: 1,
};

test("a template is of one machine and of these very files, whoever's pod asks", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "podnet-templates-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const file = (name: string): string => {
    const path = join(directory, name);
    writeFileSync(path, name);
    return path;
  };
  const [kernel, initrd, qemu] = [file("kernel"), file("initrd"), file("qemu")];
  const host = { qemu, accelerator: "tcg", tbSizeMib: 64 } as const;
  const keyOf = (over: Partial<VmPlan> = {}) => {
    const each = { ...plan, kernel, initrd, ...over };
    return templateKey(each, qemu, qemuArgv(withoutIdentity(each), host, { memory: "template" }));
  };
  const first = keyOf();
  const others = { podId: parsePodId("bcdefghijklm"), runDir: "/run/podnet/pods/bcdefghijklm" };
  t.deepEqual(keyOf({ ...others, jail: { uid: 7, cgroups: [] } }), first);
  t.deepEqual(keyOf({ nic: { ...nic, mac: parseMac("52:54:00:00:00:02") } }), keyOf({ nic }));
  for (const over of [
    { memoryMib: 256 },
    { vcpu: 2 },
    { cmdline: "x" },
    { kernel: initrd },
    { nic },
  ])
    t.not(keyOf(over).machine, first.machine);
  for (const path of [kernel, initrd, qemu]) {
    const before = keyOf();
    utimesSync(path, new Date(0), new Date(1_000_000_000_000));
    t.is(keyOf().machine, before.machine);
    t.not(keyOf().files, before.files);
    const touched = keyOf();
    rmSync(path);
    writeFileSync(path, "new");
    t.not(keyOf().files, touched.files);
  }
  rmSync(qemu);
  t.throws(keyOf, { code: "SYSCALL_FAILED" });
});

const key = (machine: string, files = "same") => ({ machine, files });
const nothing = (): Promise<void> => Promise.resolve();

test("whoever asks while it is built waits for the one build", async (t) => {
  const built = new Built();
  await using templates = new Templates(2);
  const gate = Promise.withResolvers<Template>();
  let builds = 0;
  const build = (): Promise<Template> => {
    builds++;
    return gate.promise;
  };
  const all = [1, 2, 3].map(() =>
    templates.use(key("a"), build, never, (one) => Promise.resolve(one)),
  );
  gate.resolve(built.make("a"));
  const [first, ...others] = await Promise.all(all);
  t.true(others.every((other) => other === first));
  t.is(builds, 1);
  await templates.use(key("a"), build, never, nothing);
  t.is(builds, 1);
  t.deepEqual(built.freed, []);
});

test("a build that fails fails for all who wait, and the next use builds again", async (t) => {
  const built = new Built();
  await using templates = new Templates(2);
  const failure = new PodnetError("BOOT_FAILED", "The guest restarted", { hint: "More memory" });
  const fails = (): Promise<Template> => Promise.reject(failure);
  const uses = [1, 2].map(() => templates.use(key("a"), fails, never, nothing));
  for (const use of uses)
    await t.throwsAsync(use, {
      code: "BOOT_FAILED",
      message: "No template could be made: The guest restarted",
    });
  await templates.use(key("a"), built.build("a"), never, nothing);
  t.deepEqual(built.begun, ["a"]);
});

test("those used longest ago go first, and none that is being cloned", async (t) => {
  const built = new Built();
  await using templates = new Templates(2);
  const use = (name: string, body = nothing) =>
    templates.use(key(name), built.build(name), never, body);
  const gate = Promise.withResolvers<void>();
  await use("a");
  const cloning = use("b", () => gate.promise);
  await use("a");
  await use("c");
  t.deepEqual(built.freed, []);
  gate.resolve();
  await cloning;
  t.deepEqual(built.freed, ["b"]);
  await use("a");
  await use("d");
  t.deepEqual(built.freed, ["b", "c"]);
});

test("other files make another template; who waits for the old one still gets it", async (t) => {
  const built = new Built();
  await using templates = new Templates(4);
  const gate = Promise.withResolvers<Template>();
  const old = templates.use(key("a", "old"), () => gate.promise, never, nothing);
  await templates.use(key("a", "new"), built.build("new"), never, nothing);
  gate.resolve(built.make("old"));
  await t.notThrowsAsync(old);
  t.deepEqual(built.freed, ["old"]);
  await templates.use(key("a", "new"), built.build("again"), never, nothing);
  t.deepEqual(built.begun, ["new"]);
});

/** A build that ends only on command. */
function endless(): {
  build(signal: AbortSignal): Promise<Template>;
  readonly reported: Promise<unknown>;
} {
  const reported = Promise.withResolvers<unknown>();
  return {
    reported: reported.promise,
    build: (signal) =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => {
          reported.resolve(signal.reason);
          reject(signal.reason as Error);
        });
      }),
  };
}

test("what has no waiting caller any more is given up, and does not spoil the next use", async (t) => {
  const built = new Built();
  await using templates = new Templates(2);
  const { build, reported } = endless();
  const leaving = [new AbortController(), new AbortController()];
  const uses = leaving.map(({ signal }) => templates.use(key("a"), build, signal, nothing));
  leaving[0]?.abort();
  await t.throwsAsync(uses[0] as Promise<void>, { code: "CANCELLED" });
  let given = false;
  void reported.then(() => {
    given = true;
  });
  await new Promise(setImmediate);
  t.false(given, "one still waits");
  leaving[1]?.abort();
  await t.throwsAsync(uses[1] as Promise<void>, { code: "CANCELLED" });
  // Not that build, which is being undone.
  await templates.use(key("a"), built.build("a"), never, nothing);
  t.like(await reported, { code: "CANCELLED" });
  t.deepEqual(built.begun, ["a"]);
});

test("the end frees everything, ends builds, and nothing begins after it", async (t) => {
  const built = new Built();
  const templates = new Templates(2);
  await templates.use(key("a"), built.build("a"), never, nothing);
  const { build } = endless();
  const waiting = templates.use(key("b"), build, never, nothing);
  const refused = t.throwsAsync(waiting, { code: "CANCELLED" });
  await templates[Symbol.asyncDispose]();
  await refused;
  t.deepEqual(built.freed, ["a"]);
  await t.throwsAsync(templates.use(key("a"), build, never, nothing), { code: "CANCELLED" });
});
