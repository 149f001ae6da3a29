import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { WatchPodsResponse_Kind as Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
const top = mkdtempSync(join(tmpdir(), "podnet-shares-"));
const directory = join(top, "shared");
const idOrName = "sharing";

/** What the pod has, by its path in the guest. One pod has them all: each boot takes its time. */
const places = {
  "/srv/shared": directory,
  "/srv/gone": join(top, "gone"),
  "/srv/many": join(top, "many"),
};

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  chmodSync(top, 0o755);
  for (const each of Object.values(places)) {
    mkdirSync(each);
    chmodSync(each, 0o755);
  }
  for (let i = 0; i < 100_000; i++) writeFileSync(join(places["/srv/many"], `${i}`), "");
  writeFileSync(join(top, "outside"), "must not be seen\n");
  put("hello", "of the host\n");
  put("secret", "of root\n", 0o600);
  put("large", large);
  symlinkSync("/etc/hosts", join(directory, "absolute"));
  symlinkSync("../outside", join(directory, "up"));
  spawnSync("mknod", [join(directory, "null"), "c", "1", "3"]);
  chmodSync(join(directory, "null"), 0o666);
  before = await rig.inventory();
});
test.serial.after.always(async () => {
  await rig.client.pods.delete({ idOrName, force: true }).catch(() => {});
  await rig?.[Symbol.asyncDispose]();
  rmSync(top, { recursive: true, force: true });
});

let before: string;
const large = "x".repeat(3 << 20);

const put = (name: string, content: string, mode = 0o644): void => {
  writeFileSync(join(directory, name), content);
  chmodSync(join(directory, name), mode);
};
const shell = async (script: string): Promise<string> =>
  (await execIn(rig.client, idOrName, "sh", "-c", `(${script}) 2>&1`)).output.trimEnd();

/** The processes that serve shares, in the order of the pod's. */
function servers(): readonly number[] {
  const { stdout } = spawnSync("pgrep", ["-af", "^/usr/lib/qemu/virtiofsd "]);
  const found = stdout.toString().split("\n").filter(Boolean);
  const socketOf = (line: string): number => Number(/--fd=(\d+)/.exec(line)?.[1]);
  return found.toSorted((a, b) => socketOf(a) - socketOf(b)).map((line) => Number.parseInt(line));
}

/** The guest restarts by itself, and is configured again. */
async function rebooted(): Promise<void> {
  const ended = new AbortController();
  const events = rig.client.pods.watch({ idOrName }, { signal: ended.signal });
  for await (const { kind, text } of events) {
    if (kind === Kind.SYNCED) void shell("echo b > /proc/sysrq-trigger").catch(() => {});
    if (text.startsWith("configured again")) break;
  }
  ended.abort();
}

async function reasonIs(expected: RegExp): Promise<string> {
  for (let attempt = 0; ; attempt++) {
    const { pod } = await rig.client.pods.get({ idOrName });
    if (expected.test(pod?.reason ?? "") || attempt === 600) return pod?.reason ?? "";
    await delay(100);
  }
}

/** Names, kinds, owners, sizes and times of what is in a directory. */
const lstatOf = (path: string) =>
  readdirSync(path)
    .toSorted()
    .map((name) => {
      const { mode, uid, size, mtimeMs, ctimeMs } = lstatSync(join(path, name));
      return [name, mode, uid, size, mtimeMs, ctimeMs];
    });

test.serial("a guest reads directories of the host, live", async (t) => {
  const shares = Object.entries(places).map(([path, hostPath]) => ({ hostPath, path }));
  const { pod } = await rig.client.pods.create({ spec: { name: idOrName, shares } });
  t.like(pod?.spec?.shares, shares);
  t.is(await shell("cat /srv/shared/hello"), "of the host");
  const sum = createHash("md5").update(large).digest("hex");
  t.is(await shell("md5sum < /srv/shared/large"), `${sum}  -`);
  put("hello", "changed\n");
  put("new", "made later\n");
  const shown = "until grep -q changed /srv/shared/hello; do sleep 1; done; cat /srv/shared/new";
  t.is(await shell(shown), "made later");
  t.is(await shell("cd /srv/many; set -- *; echo $#; wc -c < 99999"), "100000\n0");
});

test.serial(
  "a guest's root writes nothing to the host, and reads nothing that is elsewhere",
  async (t) => {
    // Links lead to the guest's own files.
    t.is(await shell("cat /srv/shared/absolute"), await shell("cat /etc/hosts"));
    t.regex(await shell("cat /srv/shared/up"), /No such file/);
    t.regex(await shell("cat /srv/shared/../outside"), /No such file/);
    t.regex(await shell("cat /srv/shared/secret"), /Permission denied/);
    t.regex(await shell("echo x > /srv/shared/null"), /Permission denied|Read-only/);
    // With a mount of its own, to which its own kernel lets it write.
    const attack = [
      "mount -o remount,rw /srv/shared",
      "mkdir -p /mnt/own",
      "mount -t virtiofs share0 /mnt/own",
      ...["/srv/shared", "/mnt/own"].flatMap((at) => [
        `echo written > ${at}/hello`,
        `echo written > ${at}/made`,
        `mkdir ${at}/made`,
        `ln -s x ${at}/made`,
        `mknod ${at}/made b 8 0`,
        `mv ${at}/hello ${at}/made`,
        `chmod 777 ${at}/secret`,
        `chown 5 ${at}/hello`,
        `rm -rf ${at}/hello`,
        `truncate -s 0 ${at}/large`,
        `touch ${at}/hello`,
      ]),
    ];
    const seen = lstatOf(directory);
    await shell(attack.join("; "));
    t.regex(
      await shell("grep -c ' rw,.*' /proc/mounts; grep '/mnt/own virtiofs rw' /proc/mounts"),
      /own/,
    );
    t.deepEqual(lstatOf(directory), seen);
    t.is(readFileSync(join(directory, "hello"), "utf8"), "changed\n");
  },
);

test.serial("what serves a share has no right of any kind, and sees its directory alone", (t) => {
  const pids = servers();
  t.is(pids.length, 3);
  for (const pid of pids) {
    const status = readFileSync(`/proc/${pid}/status`, "latin1");
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
      t.regex(status, new RegExp(`^${set}:\\t0+$`, "m"), set);
    t.regex(status, /^NoNewPrivs:\t1$/m);
    t.regex(status, /^Seccomp_filters:\t2$/m);
    t.notRegex(status, /^Uid:\t0/m);
    const mounts = readFileSync(`/proc/${pid}/mountinfo`, "latin1").trim().split("\n");
    for (const line of mounts) t.regex(line, /^(?:\S+ ){4}\S+ ro,/);
    for (const kind of ["mnt", "net", "pid", "ipc", "uts"])
      t.not(readlinkSync(`/proc/${pid}/ns/${kind}`), readlinkSync(`/proc/self/ns/${kind}`), kind);
    // A descriptor of the directory that was opened outside would be of a mount that is writable.
    const own = new Set(mounts.map((line) => line.split(" ", 1)[0]));
    const foreign = readdirSync(`/proc/${pid}/fd`).filter((fd) => {
      const id = /^mnt_id:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, "latin1"))?.[1];
      return !own.has(id ?? "") && /^\/(?!memfd:)/.test(readlinkSync(`/proc/${pid}/fd/${fd}`));
    });
    const names = foreign.map((fd) => basename(readlinkSync(`/proc/${pid}/fd/${fd}`)));
    t.deepEqual([...new Set(names)].toSorted(), ["fd", "null", "qemu.log", "task"]);
  }
});

test.serial("shares outlive podnetd, and a guest that restarts has them anew", async (t) => {
  const serving = servers();
  await rig.restart("kill");
  t.deepEqual(servers(), serving);
  t.is(await shell("cat /srv/shared/hello"), "changed");
  await rebooted();
  t.is(await shell("cat /srv/shared/hello"), "changed");
  t.deepEqual(servers(), serving);
});

test.serial(
  "a directory that goes while it is shared is empty; the pod does not start again",
  async (t) => {
    const gone = places["/srv/gone"];
    writeFileSync(join(gone, "file"), "x");
    t.is(await shell("until test -e /srv/gone/file; do sleep 1; done; ls /srv/gone"), "file");
    rmSync(gone, { recursive: true });
    t.is(
      await shell("while test -e /srv/gone/file; do sleep 1; done; ls /srv/gone; echo on"),
      "on",
    );
    await rig.client.pods.stop({ idOrName });
    t.deepEqual(servers(), []);
    const refused = { code: "SHARE_UNUSABLE", field: "shares[1].host_path" };
    t.like(await t.throwsAsync(rig.client.pods.start({ idOrName })), refused);
    // A link in its place leads nowhere.
    symlinkSync("/etc", gone);
    t.like(await t.throwsAsync(rig.client.pods.start({ idOrName })), refused);
    t.deepEqual(servers(), []);
    rmSync(gone);
    mkdirSync(gone);
    chmodSync(gone, 0o755);
  },
);

for (const when of ["while podnetd runs", "while podnetd is gone"])
  test.serial(
    `a server that ends ${when} makes the pod degraded, until it starts again`,
    async (t) => {
      await rig.client.pods.start({ idOrName });
      t.is(await shell("cat /srv/shared/hello"), "changed");
      t.is((await rig.client.pods.get({ idOrName })).pod?.reason, "");
      const [pid = 0, ...others] = servers();
      if (when === "while podnetd is gone") await rig.daemon.kill();
      process.kill(pid, "SIGKILL");
      if (when === "while podnetd is gone") await rig.restart("kill");
      t.regex(await reasonIs(/share \/srv\/shared is lost/), /virtiofsd has ended/);
      t.is(await shell("wc -c < /srv/many/5"), "0");
      t.deepEqual(servers(), others);
      await rig.client.pods.stop({ idOrName });
      t.deepEqual(servers(), []);
    },
  );

test.serial("nothing is left of shares when their pod is gone", async (t) => {
  await rig.client.pods.delete({ idOrName });
  t.deepEqual(servers(), []);
  t.deepEqual(await rig.changes(before), []);
});
