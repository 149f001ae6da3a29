import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";

const podnetd = join(import.meta.dirname, "../../bin/podnetd");

let lab: Lab;
let config: string;

test.serial.before(async () => {
  lab = await openLab(`state${process.pid}-`);
  config = `quarantine_s = 0\n${await standInConfig(mkdtempSync(join(tmpdir(), "podnet-images-")))}`;
});
test.serial.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
});

/** A directory for a daemon whose state is on a file system of its own, of so many KiB. */
function smallState(kib: number): string {
  const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
  const state = join(directory, "state");
  mkdirSync(state);
  execFileSync("mount", ["-n", "-t", "tmpfs", "-o", `size=${kib}k,mode=700`, "tmpfs", state]);
  return directory;
}

const start = (directory: string, failpoints = ""): Promise<Podnetd> =>
  startPodnetd({
    machine: lab.host,
    directory,
    config,
    env: { PODNET_FAILPOINTS: failpoints },
  });

/** Runs a podnetd that is not to start, and answers its exit code and what it says. */
async function refused(
  ...argv: readonly [string, ...string[]]
): Promise<{ readonly code: number; readonly said: string }> {
  const child = lab.lan.spawn(argv, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const code = await new Promise<number>((resolve) => child.once("close", resolve));
  return { code, said };
}

test.serial(
  "a full disk fails creates with a code and no delete, and the daemon goes on when there is room",
  async (t) => {
    const directory = smallState(8192);
    await using daemon = await start(directory);
    using client = connectPodnet({ socket: daemon.socket });
    await client.pods.create({ spec: { name: "before" } });
    const filler = join(daemon.stateDir, "filler");
    const codes = new Set<string>();
    // Less and less room is left, so that it runs out at one write after the other.
    for (let kib = 200; kib >= 0; kib -= 16) {
      const free = Number(
        execFileSync("df", ["-k", "--output=avail", daemon.stateDir]).toString().split("\n")[1],
      );
      writeFileSync(filler, Buffer.alloc(Math.max(0, free - kib) * 1024));
      try {
        await client.pods.create({ spec: { name: "cramped" } });
      } catch (thrown) {
        codes.add(String((thrown as { code?: unknown }).code));
      }
      await client.pods.delete({ idOrName: "cramped" });
      rmSync(filler);
      const { pods } = await client.pods.list({});
      t.deepEqual(
        pods.map(({ name }) => name),
        ["before"],
        `with ${kib} KiB: ${pods.map(({ name, state, reason }) => `${name} ${state} ${reason}`).join()}`,
      );
    }
    t.deepEqual([...codes], ["STATE_UNWRITABLE"]);
    const { networks } = await client.networks.list({});
    t.is(networks[0]?.subnets[0]?.used, "1");
    const { pod } = await client.pods.create({ spec: { name: "after" } });
    await lab.host.ping(pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "", 1);
  },
);

test.serial(
  "a state directory that cannot be written is refused, and what is in it stays as it is",
  async (t) => {
    const directory = smallState(1024);
    const daemon = await start(directory);
    const { stateDir, configFile } = daemon;
    // (As long as it has the file open, the mount is busy.)
    const ended = once(daemon.process, "exit");
    await daemon.podnet("down", "--yes");
    await ended;
    const before = readFileSync(join(stateDir, "state.db"));
    execFileSync("mount", ["-n", "-o", "remount,ro", stateDir]);
    const { code, said } = await refused(podnetd, "--config", configFile);
    t.is(code, 1);
    t.regex(said, /"code":"STATE_UNWRITABLE"[^\n]*"hint":"Check free space/);
    t.deepEqual(readFileSync(join(stateDir, "state.db")), before);
    execFileSync("mount", ["-n", "-o", "remount,rw", stateDir]);
    const again = await start(directory);
    await again.podnet("down", "--yes");
  },
);

test.serial(
  "a file system that fails while podnetd runs fails what needs it, and pods run on until it is repaired",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
    const state = join(directory, "state");
    const [image, copy] = ["state.img", "repaired.img"].map((name) => join(directory, name));
    const run = (command: string): string => execFileSync("sh", ["-ec", command]).toString();
    const mount = (file = ""): string =>
      run(`mount -n -o loop,errors=remount-ro ${file} ${state} && chmod 700 ${state}`);
    mkdirSync(state);
    run(`truncate -s 8M ${image} && mkfs.ext4 -q ${image}`);
    mount(image);
    const daemon = await start(directory, "channel:getVersion:before#2=hang:1500");
    using client = connectPodnet({ socket: daemon.socket });
    const { pod } = await client.pods.create({ spec: { name: "runs" } });
    const address = pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "";
    // A create is under way, held up by the failpoint, while the kernel lets nothing be written any
    // more.
    const underWay = t.throwsAsync(client.pods.create({ spec: { name: "under-way" } }), {
      code: "STATE_UNWRITABLE",
    });
    for (let i = 0; i < 100 && (await client.pods.list({})).pods.length < 2; i++) await delay(10);
    t.is((await client.pods.list({})).pods.length, 2);
    run(`echo 1 > /sys/fs/ext4/$(basename $(findmnt -no SOURCE ${state}))/trigger_fs_error`);
    await underWay;
    await t.throwsAsync(client.pods.create({ spec: { name: "later" } }), {
      code: "STATE_UNWRITABLE",
    });
    await t.throwsAsync(client.pods.delete({ idOrName: "runs" }), { code: "STATE_UNWRITABLE" });
    await lab.host.ping(address, 1);
    t.is(daemon.process.exitCode, null);
    await daemon.stop();
    // The machine that runs on sees its mounts as they were, so what is repaired is a copy.
    run(`umount -n ${state}; cp ${image} ${copy}; fsck.ext4 -p ${copy} >&2 || [ $? = 1 ]`);
    mount(copy);
    const again = await start(directory);
    using repaired = connectPodnet({ socket: again.socket });
    const { pods } = await repaired.pods.list({});
    t.deepEqual(
      pods.map(({ name, vm }) => [name, vm?.pid]),
      [["runs", pod?.vm?.pid]],
    );
    await repaired.pods.create({ spec: { name: "later" } });
    await again.podnet("down", "--yes");
    run(`umount -n ${state}`);
  },
);

test.serial(
  "a state that is damaged while podnetd runs ends it cleanly with a hint, and machines run on",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
    const daemon = await start(directory);
    using client = connectPodnet({ socket: daemon.socket });
    const { pod } = await client.pods.create({ spec: { name: "runs" } });
    const file = join(daemon.stateDir, "state.db");
    const ended = once(daemon.process, "exit");
    const other = new DatabaseSync(file);
    other.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    const good = readFileSync(file);
    // All but the first page, which holds the schema.
    writeFileSync(
      file,
      Buffer.concat([good.subarray(0, 4096), Buffer.alloc(good.length - 4096, 0xa5)]),
    );
    // Another's commit is why podnetd reads the file again, and not what it remembers.
    other.exec("PRAGMA user_version = 1");
    await t.throwsAsync(client.pods.list({}), { code: "STATE_CORRUPT" });
    const [code] = (await ended) as [number | null];
    t.is(code, 1, daemon.log());
    t.regex(daemon.log(), /"code":"STATE_CORRUPT"[^\n]*never deletes it[^\n]*"Cannot go on"/);
    t.notRegex(daemon.log(), /because of a defect|Cannot end cleanly/);
    other.close();
    t.true(existsSync(`/proc/${pod?.vm?.pid}`));
    await lab.host.ping(pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "", 1);
    rmSync(`${file}-wal`, { force: true });
    rmSync(`${file}-shm`, { force: true });
    writeFileSync(file, good);
    await using again = await start(directory);
    using restored = connectPodnet({ socket: again.socket });
    t.is((await restored.pods.get({ idOrName: "runs" })).pod?.vm?.pid, pod?.vm?.pid);
  },
);

test.serial(
  "a damaged state is refused with a hint, and nothing on host or disk is changed",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
    const daemon = await start(directory);
    using client = connectPodnet({ socket: daemon.socket });
    const { pod } = await client.pods.create({ spec: { name: "runs" } });
    await daemon.stop();
    const file = join(daemon.stateDir, "state.db");
    const good = readFileSync(file);
    writeFileSync(file, "");
    const { code, said } = await refused(podnetd, "--config", daemon.configFile);
    t.is(code, 1);
    t.regex(said, /"STATE_CORRUPT"[^\n]*never deletes it/);
    t.is(readFileSync(file).length, 0);
    t.true(
      existsSync(`/proc/${pod?.vm?.pid}`),
      "a machine that no row names any more is not ended",
    );
    await lab.host.ping(pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "", 1);
    writeFileSync(file, good);
    await using again = await start(directory);
    using restored = connectPodnet({ socket: again.socket });
    t.is((await restored.pods.get({ idOrName: "runs" })).pod?.vm?.pid, pod?.vm?.pid);
  },
);

test.serial(
  "one state directory has one daemon, whatever namespaces and by whatever path the second comes",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
    await using daemon = await start(directory);
    using client = connectPodnet({ socket: daemon.socket });
    const { pod } = await client.pods.create({ spec: { name: "first" } });
    const elsewhere = mkdtempSync(join(tmpdir(), "podnet-elsewhere-"));
    const run = ["--run-dir", join(elsewhere, "run"), "--socket", join(elsewhere, "sock")];
    const other = join(elsewhere, "state");
    mkdirSync(other);
    const bound = `mount -n --bind ${daemon.stateDir} ${other} && exec ${podnetd} --state-dir ${other} ${run.join(" ")}`;
    for (const argv of [
      [podnetd, "--state-dir", daemon.stateDir, ...run],
      ["unshare", "--mount", "sh", "-c", bound],
    ] as const) {
      const { code, said } = await refused(...(argv as readonly [string, ...string[]]));
      t.is(code, 1, said);
      t.regex(
        said,
        /"ALREADY_RUNNING"[^\n]*uses the state directory[^\n]*"hint":"Use the one that runs/,
      );
    }
    const now = await client.pods.get({ idOrName: "first" });
    t.is(now.pod?.vm?.pid, pod?.vm?.pid);
    await lab.host.ping(pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "", 1);
  },
);

test.serial(
  "a podnetd with another state, but the run directory or the socket of the first, is refused and ends nothing",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
    await using daemon = await start(directory);
    using client = connectPodnet({ socket: daemon.socket });
    const { pod } = await client.pods.create({ spec: { name: "first" } });
    const elsewhere = mkdtempSync(join(tmpdir(), "podnet-elsewhere-"));
    const own = {
      "--state-dir": join(elsewhere, "state"),
      "--run-dir": join(elsewhere, "run"),
      "--socket": join(elsewhere, "sock"),
    };
    const shared = {
      "--run-dir": ["run directory", daemon.runDir],
      "--socket": ["socket", daemon.socket],
    } as const;
    for (const [flag, [what, path]] of Object.entries(shared)) {
      const flags = Object.entries({ ...own, [flag]: path }).flat();
      const { code, said } = await refused(podnetd, "--config", daemon.configFile, ...flags);
      t.is(code, 1, said);
      t.regex(said, new RegExp(`"ALREADY_RUNNING"[^\\n]*uses the ${what}`));
    }
    // Exported for the command `podnet`, it leads podnetd nowhere.
    const exported = ["env", `PODNET_SOCKET=${join(elsewhere, "client")}`] as const;
    const { said } = await refused(...exported, podnetd, "--config", daemon.configFile);
    t.regex(said, /PODNET_SOCKET is for the command podnet/);
    t.regex(said, /"ALREADY_RUNNING"[^\n]*uses the state directory/);
    const now = await client.pods.get({ idOrName: "first" });
    t.is(now.pod?.vm?.pid, pod?.vm?.pid);
    t.true(existsSync(`/proc/${pod?.vm?.pid}`));
    t.true(existsSync(join(daemon.runDir, "pods", pod?.id ?? "", "qmp.sock")));
    await lab.host.ping(pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "", 1);
  },
);

test.serial(
  "a run directory without inodes is reported, creates fail with a code, and pods can still be deleted",
  async (t) => {
    const directory = mkdtempSync(join(tmpdir(), "podnet-state-"));
    const run = join(directory, "run");
    mkdirSync(run);
    execFileSync("mount", ["-n", "-t", "tmpfs", "-o", "nr_inodes=64,mode=755", "tmpfs", run]);
    await using daemon = await start(directory);
    using client = connectPodnet({ socket: daemon.socket });
    await client.pods.create({ spec: { name: "before" } });
    const check = async () => {
      const { checks, ok } = await client.node.health({});
      return { ok, message: checks.find(({ name }) => name === "run directory")?.message ?? "" };
    };
    t.notRegex((await check()).message, /no inode/);
    const fillers: string[] = [];
    try {
      for (let i = 0; i < 100; i++) {
        const filler = join(run, `filler${i}`);
        writeFileSync(filler, "");
        fillers.push(filler);
      }
    } catch (thrown) {
      t.is((thrown as NodeJS.ErrnoException).code, "ENOSPC");
    }
    const full = await check();
    t.false(full.ok);
    t.regex(full.message, /has no inode left/);
    await t.throwsAsync(client.pods.create({ spec: { name: "cramped" } }), {
      code: "SYSCALL_FAILED",
      message: /run directory.*ENOSPC/,
    });
    await client.pods.delete({ idOrName: "before" });
    for (const filler of fillers) rmSync(filler);
    await client.pods.create({ spec: { name: "after" } });
    await daemon.podnet("down", "--yes");
    await daemon.stop();
  },
);
