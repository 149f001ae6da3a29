import { execFile, spawnSync } from "node:child_process";
import { createServer, type Server } from "node:net";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { podIdFromBytes } from "../../core/names.ts";
import type { VmPlan } from "../../hypervisor/driver.ts";
import {
  chooseCgroups,
  parseCgroupMounts,
  type VmLimits,
  planCgroups,
} from "../../hypervisor/jail/cgroup-layout.ts";
import { findLauncher } from "../../hypervisor/jail/launcher.ts";
import { makeRunDir } from "../../hypervisor/process/run-dir.ts";
import { buildProbe, type JailedProbe, probeInside, probeOutside } from "../peers/jail-probe.ts";
import { debianGuest } from "./hypervisor-rig.ts";

/**
 * What QEMU could do that is no longer QEMU: a program of ours runs in its place, and outside,
 * where it can do it all.
 */

const directory = mkdtempSync(join(tmpdir(), "podnet-jail-"));
const uids = { own: 2_000_060_001, other: 2_000_060_002 };
const layout = chooseCgroups(
  parseCgroupMounts(readFileSync("/proc/self/mountinfo", "utf8")),
  { controllers: () => undefined, has: existsSync },
  "podnet-test",
);
if ("missing" in layout) throw new Error(`No cgroups: ${layout.missing.join(" ")}`);
const cgroups = layout;
const probe = await buildProbe();
const servers: Server[] = [];

function planOf(uid: number, limits: VmLimits = { memoryMib: 64, pids: 16 }) {
  const podId = podIdFromBytes(crypto.getRandomValues(new Uint8Array(12)));
  return {
    podId,
    vcpu: 1,
    memoryMib: 32,
    ...debianGuest,
    cmdline: "",
    disks: [],
    runDir: join(directory, "pods", podId),
    jail: { uid, cgroups: planCgroups(cgroups, podId, limits) },
  };
}

async function listen(where: string | number): Promise<Server> {
  const server = createServer();
  servers.push(server);
  await once(
    typeof where === "number" ? server.listen(where, "127.0.0.1") : server.listen(where),
    "listening",
  );
  return server;
}

/** Runs the same attempts in the jail and outside. */
async function both(plan: VmPlan, attempts: readonly string[]) {
  const inside = await (await probeInside(plan, probe, attempts)).ended;
  const outside = await probeOutside(probe, attempts);
  return { inside, outside };
}

test.after.always(() => {
  for (const server of servers) server.close();
  rmSync(directory, { recursive: true, force: true });
});

test.serial("it sees what it was given, and nothing else", async (t) => {
  const plan = planOf(uids.own);
  const inside = await (await probeInside(plan, probe, ["list=/"])).ended;
  const outside = await probeOutside(probe, ["list=/etc", "list=/proc"]);
  const seen = new Set(inside.seen.filter((path) => !/^\/(?:usr\/(?:lib|share)|proc)/.test(path)));
  const above = (path: string): string[] =>
    path.split("/").flatMap((_, i, parts) => (i === 0 ? [] : [parts.slice(0, i + 1).join("/")]));
  const given = [plan.kernel, plan.initrd, plan.runDir, probe].flatMap(above);
  const always = [
    "/dev",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/etc",
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr",
    ...["enabled", "hpage_pmd_size"]
      .map((name) => `/sys/kernel/mm/transparent_hugepage/${name}`)
      .filter((path) => existsSync(path))
      .flatMap(above),
  ];
  t.deepEqual([...seen].toSorted(), [...new Set([...always, ...given])].toSorted());
  // Of processes it sees itself; of /proc nothing that reports the host.
  const proc = inside.seen.filter((path) => path.startsWith("/proc/"));
  t.deepEqual(proc.toSorted(), ["/proc/1", "/proc/self", "/proc/thread-self"]);
  t.true(outside.seen.includes("/etc/passwd"));
  t.true(outside.seen.includes("/proc/sys"));
});

test.serial(
  "it reads no file of the host's and writes none but in its own directory",
  async (t) => {
    // Rights alone would let any user write to either.
    const [kernel, secret] = [join(directory, "kernel"), join(directory, "secret")];
    for (const path of [kernel, secret]) {
      writeFileSync(path, "x");
      chmodSync(path, 0o666);
    }
    const [plan, other] = [{ ...planOf(uids.own), kernel }, planOf(uids.other)];
    await makeRunDir(other);
    writeFileSync(join(other.runDir, "qemu.log"), "x", { mode: 0o666 });
    const refused = [
      `read=${secret}`,
      "read=/etc/passwd",
      "read=/proc/1/root/etc/passwd",
      "read=/../etc/passwd",
      `read=${other.runDir}/qemu.log`,
      `write=${secret}`,
      "create=/made",
      "create=/usr/lib/made",
      `create=${directory}/made`,
      `create=${other.runDir}/made`,
      `chmod=${kernel}`,
      `write=${kernel}`,
    ];
    const allowed = [`create=${plan.runDir}/made`, `unlink=${plan.runDir}/made`, `read=${kernel}`];
    const { results } = await (await probeInside(plan, probe, [...refused, ...allowed])).ended;
    for (const attempt of refused) t.not(results[attempt], "ok", attempt);
    t.is(results[`write=${kernel}`], "Read-only file system");
    for (const attempt of allowed) t.is(results[attempt], "ok", attempt);
    // Outside each of them works: it is the jail that refuses.
    const harmless = refused.filter((attempt) => !/=\/usr|=\/made/.test(attempt));
    const outside = await probeOutside(probe, harmless);
    for (const [attempt, result] of Object.entries(outside.results)) t.is(result, "ok", attempt);
  },
);

test.serial(
  "podnetd's log of it and what podnetd has to walk through stay podnetd's",
  async (t) => {
    const plan = planOf(uids.own);
    await makeRunDir(plan);
    const at = (name: string): string => join(plan.runDir, name);
    const refused = [
      `symlink=${at("qmp.sock")}`,
      `mkdir=${at("directory")}`,
      `fifo=${at("fifo")}`,
      `mknod=${at("device")}`,
      `chmod=${plan.runDir}`,
    ];
    const inside = await (await probeInside(plan, probe, refused)).ended;
    for (const attempt of refused)
      t.is(inside.results[attempt], "Operation not permitted", attempt);
    await makeRunDir(plan);
    const outside = await probeOutside(probe, refused);
    for (const attempt of refused) t.is(outside.results[attempt], "ok", attempt);
    rmSync(plan.runDir, { recursive: true });
    // The log is there before it: it may not take it away, and put its own there.
    const jailed = await probeInside(plan, probe, ["sleep=1", `unlink=${at("qemu.log")}`]);
    writeFileSync(at("qemu.log"), "", { mode: 0o600 });
    const { results } = await jailed.ended;
    t.is(results[`unlink=${at("qemu.log")}`], "Operation not permitted");
  },
);

test.serial(
  "it has no connections: not to podnetd, no other pod, nothing of the network",
  async (t) => {
    const [plan, other] = [planOf(uids.own), planOf(uids.other)];
    await makeRunDir(other);
    const api = join(directory, "podnet.sock");
    const qmp = join(other.runDir, "qmp.sock");
    await listen(api);
    await listen(qmp);
    await listen("\0podnet-jail-test");
    const tcp = (await listen(0)).address();
    const port = typeof tcp === "object" ? tcp?.port : undefined;
    const attempts = [`unix=${api}`, `unix=${qmp}`, "unix=@podnet-jail-test", `tcp=${port}`];
    const sockets = ["netlink", "packet", "vsock"];
    const { inside, outside } = await both(plan, [
      ...attempts,
      ...sockets,
      "read=/proc/self/net/dev",
    ]);
    for (const attempt of [...attempts, ...sockets]) t.not(inside.results[attempt], "ok", attempt);
    for (const attempt of [...attempts, ...sockets]) t.is(outside.results[attempt], "ok", attempt);
    t.is(inside.results["unix=@podnet-jail-test"], "Connection refused");
    t.is(inside.results["vsock"], "Operation not permitted");
  },
);

test.serial("its network namespace has lo alone, which is down", async (t) => {
  const jailed = await probeInside(planOf(uids.own), probe, ["sleep=2"]);
  const { stdout } = await promisify(execFile)("nsenter", [
    `--net=/proc/${jailed.report.pid}/ns/net`,
    "ip",
    "-o",
    "link",
  ]);
  t.regex(stdout, /^1: lo: <LOOPBACK> .*\n$/);
  await jailed.ended;
});

test.serial("it signals and traces no process", async (t) => {
  const victim = await probeInside(planOf(uids.other), probe, ["sleep=3"]);
  const attempts = [`signal=${process.pid}`, `signal=${victim.report.pid}`, "signal=2"];
  const { inside, outside } = await both(planOf(uids.own), [
    ...attempts,
    `ptrace=${victim.report.pid}`,
  ]);
  for (const attempt of attempts) t.is(inside.results[attempt], "No such process", attempt);
  t.is(inside.results[`ptrace=${victim.report.pid}`], "Operation not permitted");
  t.is(outside.results[`signal=${victim.report.pid}`], "ok");
  t.is(outside.results[`ptrace=${victim.report.pid}`], "ok");
  await victim.ended;
});

test.serial("it gets no privilege back", async (t) => {
  const plan = planOf(uids.own);
  const mount = `mount=${plan.runDir}`;
  const refused = ["root", mount, "clone", "keyctl", "io_uring", "userns", "chroot=/"];
  // Of a podnetd in many groups.
  const grouped = ["setpriv", "--groups", "0,4242"];
  const jailed = await probeInside(plan, probe, [...refused, "sleep=1"], grouped);
  const status = readFileSync(`/proc/${jailed.report.pid}/status`, "latin1");
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
    t.regex(status, new RegExp(`^${set}:\\s+0+$`, "m"));
  t.regex(status, /^NoNewPrivs:\s+1$/m);
  t.regex(status, /^Seccomp:\s+2$/m);
  t.regex(status, /^Groups:\s*$/m);
  const { results } = await jailed.ended;
  for (const attempt of refused) t.is(results[attempt], "Operation not permitted", attempt);
  mkdirSync(plan.runDir, { recursive: true });
  const outside = await probeOutside("unshare", ["--mount", probe, ...refused]);
  for (const attempt of refused) t.is(outside.results[attempt], "ok", attempt);
  rmSync(plan.runDir, { recursive: true });
});

test.serial("of a podnetd that is no root it keeps no capability either", async (t) => {
  // Only who stops being root loses them by that; those of the unit's podnetd are ambient.
  const capabilities = [
    "chown",
    "dac_override",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "sys_admin",
  ];
  const caps = ["-all", ...capabilities.map((each) => `+${each}`)].join(",");
  const sets = ["--inh-caps", "--ambient-caps", "--bounding-set"].map((set) => `${set}=${caps}`);
  const service = ["setpriv", "--reuid=4243", "--regid=4243", "--clear-groups", ...sets];
  const jailed = await probeInside(planOf(uids.own), probe, ["root", "sleep=1"], service);
  t.is(jailed.report.error, undefined);
  const status = readFileSync(`/proc/${jailed.report.pid}/status`, "latin1");
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
    t.regex(status, new RegExp(`^${set}:\\s+0+$`, "m"));
  const { results } = await jailed.ended;
  t.is(results["root"], "Operation not permitted");
});

test.serial("a fork bomb goes no further than its limit", async (t) => {
  const limits = { memoryMib: 64, pids: 16 };
  const { inside, outside } = await both(planOf(uids.own, limits), ["bomb=200"]);
  t.is(inside.results["bomb=200"], "Resource temporarily unavailable");
  t.regex(inside.output, /forked 15\n/);
  t.is(outside.results["bomb=200"], "ok");
});

test.serial("memory beyond its limit kills it, and it alone", async (t) => {
  const alongside = await probeInside(planOf(uids.other), probe, ["fill=20", "sleep=1", "fill=20"]);
  const { inside, outside } = await both(planOf(uids.own), ["fill=200"]);
  t.is(inside.signal, "SIGKILL");
  t.is(outside.results["fill=200"], "ok");
  const { code, results } = await alongside.ended;
  t.is(code, 0);
  t.is(results["fill=20"], "ok");
});

test.serial("two machines are two users", async (t) => {
  const uidOf = ({ report }: JailedProbe): string | undefined =>
    /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${report.pid}/status`, "latin1"))?.[1];
  const [one, two] = await Promise.all(
    [uids.own, uids.other].map((uid) => probeInside(planOf(uid), probe, ["sleep=1"])),
  );
  t.deepEqual(
    [one, two].map((each) => each && uidOf(each)),
    [`${uids.own}`, `${uids.other}`],
  );
  await Promise.all([one?.ended, two?.ended]);
});

test.serial("what the launcher does not know it refuses: no word is taken for another", (t) => {
  const start = (words: readonly string[]) => {
    const { status, output } = spawnSync(findLauncher(), words, {
      stdio: ["ignore", "pipe", "pipe", "pipe"],
      encoding: "utf8",
    });
    return { status, said: output.join("") };
  };
  const good = ["--uid", "5000", "--run", directory, "--report", "3"];
  const end = ["--", probe, "read=/dev/zero"];
  t.like(start([...good, ...end]), { status: 0 });
  for (const words of [
    [],
    ["--"],
    good,
    [...good, "--"],
    ["--uid", "0", ...good.slice(2), ...end],
    ["--uid", "-1", ...good.slice(2), ...end],
    ["--uid", "1x", ...good.slice(2), ...end],
    ["--uid", "4294967295", ...good.slice(2), ...end],
    [...good.slice(2), ...end],
    [...good.slice(0, 2), "--run", "relative", ...good.slice(4), ...end],
    [...good.slice(0, 4), ...end],
    [...good.slice(0, 4), "--report", "2", ...end],
    [...good, "--", "jail-probe"],
    [...good, "--shell", "x", ...end],
    [...good, "--uid"],
    [...good, "--read", "/etc", ...end],
    [...good, "--read", "/", ...end],
    [...good, "--read", "/dev/zero", ...end],
    [...good, "--read", "/nowhere", ...end],
    [...good, ...Array.from({ length: 200 }, () => ["--read", probe]).flat(), ...end],
  ]) {
    const { status, said } = start(words);
    t.is(status, 125, words.join(" "));
    t.regex(said, /^error /m, words.join(" "));
    t.notRegex(said, /ready|read=/, words.join(" "));
  }
});
