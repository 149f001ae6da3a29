import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Code } from "@connectrpc/connect";
import test from "ava";
import { NamespaceMode } from "../../daemon/cri/gen/cri_pb.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { type CriClients, openCri } from "../lab/cri/client.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

// A container of Kubernetes that writes to a directory of the node, in a real machine.

const owner = 4321;
let top: string;
let data: string;
let rig: Rig;
let cri: CriClients;
let podSandboxId = "";
let containerId = "";

const sandbox = (paths: string, attempt = 0) => ({
  metadata: { name: "db", uid: "u-1", namespace: "default", attempt },
  annotations: { "podnet/writable-paths": paths },
});

/** A directory of a user without other rights. */
function ownDirectory(path: string): string {
  mkdirSync(path);
  chownSync(path, owner, owner);
  chmodSync(path, 0o750);
  return path;
}

test.serial.before(async () => {
  top = mkdtempSync(join(tmpdir(), "podnet-written-"));
  mkdirSync(join(top, "allowed"));
  data = ownDirectory(join(top, "allowed/data"));
  ownDirectory(join(top, "elsewhere"));
  symlinkSync(join(top, "elsewhere"), join(top, "allowed/link"));
  mkdirSync(join(top, "allowed/of-root"));
  mkdirSync(join(data, "deep"));
  chownSync(join(data, "deep"), owner, owner);
  writeFileSync(join(top, "outside"), "outside\n");
  writeFileSync(join(data, "of-root"), "secret of root\n", { mode: 0o600 });
  symlinkSync(join(top, "outside"), join(data, "absolute"));
  symlinkSync("../../outside", join(data, "up"));
  const socket = join(top, "cri.sock");
  const access = `[access]\nwritable_share_paths = ["${join(top, "allowed")}"]\n`;
  rig = await openRig(`quarantine_s = 0\n${access}[cri]\nsocket = "${socket}"\n`);
  busyboxImage(top);
  const archive = join(top, "app.tar");
  const config = { Entrypoint: ["sh", "-c"], Cmd: ["sleep 1000"] };
  writeDockerArchive(archive, { layers: [tarOf(join(top, "busybox"))], config });
  await rig.daemon.podnet("image", "import", archive, "app:1");
  cri = openCri(socket);
});
test.serial.after.always(async () => {
  cri?.[Symbol.dispose]();
  await rig?.[Symbol.asyncDispose]();
  rmSync(top, { recursive: true, force: true });
});

const servers = (): readonly number[] =>
  spawnSync("pgrep", ["-f", "^/usr/lib/qemu/virtiofsd "])
    .stdout.toString()
    .split("\n")
    .filter(Boolean)
    .map(Number);

const shell = async (script: string): Promise<string> => {
  const cmd = ["sh", "-c", `(${script}) 2>&1`];
  const { stdout } = await cri.runtime.execSync({ containerId, cmd });
  return Buffer.from(stdout).toString().trimEnd();
};
/** As root of the machine, not of a container. */
const asRoot = async (script: string): Promise<string> =>
  (await execIn(rig.client, podSandboxId, "sh", "-c", `(${script}) 2>&1`)).output.trimEnd();

test.serial("a directory that may not be written to has no sandbox", async (t) => {
  for (const [path, code] of [
    [join(top, "elsewhere"), Code.PermissionDenied],
    [join(top, "allowed/link"), Code.PermissionDenied],
    [`${data}/../../elsewhere`, Code.InvalidArgument],
    [join(top, "allowed/of-root"), Code.FailedPrecondition],
    [join(top, "allowed/absent"), Code.FailedPrecondition],
  ] as const)
    await t.throwsAsync(cri.runtime.runPodSandbox({ config: sandbox(path) }), { code }, path);
  t.deepEqual((await rig.client.pods.list({})).pods, []);
  t.deepEqual(servers(), []);
});

test.serial("a container writes to a directory of the node as its owner", async (t) => {
  ({ podSandboxId } = await cri.runtime.runPodSandbox({ config: sandbox(data) }));
  const mounts = [
    { containerPath: "/data", hostPath: data },
    { containerPath: "/read", hostPath: join(data, "deep"), readonly: true },
  ];
  const config = {
    metadata: { name: "db", attempt: 0 },
    image: { image: "app:1" },
    mounts,
    linux: { securityContext: { namespaceOptions: { pid: NamespaceMode.CONTAINER } } },
  };
  ({ containerId } = await cri.runtime.createContainer({ podSandboxId, config }));
  await cri.runtime.startContainer({ containerId });
  t.is(await shell("echo one > /data/deep/file; mkdir /data/made; cat /read/file"), "one");
  t.regex(await shell("echo two > /read/file"), /Read-only/);
  for (const name of ["deep/file", "made"]) {
    const { uid, gid } = lstatSync(join(data, name));
    t.deepEqual({ uid, gid }, { uid: owner, gid: owner }, name);
  }
  t.is(readFileSync(join(data, "deep/file"), "utf8"), "one\n");
  // What databases do.
  const steps = [
    "cd /data && mkdir db && chmod 700 db && cd db",
    "dd if=/dev/zero of=wal bs=4096 count=64 conv=fsync 2>/dev/null",
    "mv wal wal.1 && ln wal.1 wal.2 && rm wal.1 && ln -s wal.2 last && wc -c < last",
    "mkfifo pipe && rm pipe && truncate -s 10 wal.2 && touch -t 202001010000 wal.2",
  ];
  t.is(await shell(steps.join("; ")), "262144");
  t.is(lstatSync(join(data, "db/wal.2")).size, 10);
  writeFileSync(join(data, "deep/file"), "of the node\n");
  const shown = "until grep -q node /read/file; do sleep 0.2; done; cat /read/file";
  t.is(await shell(shown), "of the node");
});

test.serial("a machine's root gets no further than the directory and its owner", async (t) => {
  const at = "/mnt/own";
  const attack = [
    `mkdir -p ${at}; mount -t virtiofs share0 ${at}; cd ${at}`,
    "cat up absolute of-root; cat ../../outside",
    "cp /bin/busybox tool; chmod 4755 tool; chmod 2755 tool; chmod u+s tool; chown 0:0 tool",
    "mknod disk b 8 0; mknod null c 1 3; mknod zero c 0 0",
    "chmod 777 of-root; chown 4321 of-root; echo x > of-root; echo x > up; echo x > absolute",
    "mkdir -m 2777 wide; ln /mnt/own/of-root linked; ln -s /etc/passwd passwd",
  ];
  const said = await asRoot(attack.join("; "));
  t.notRegex(said, /secret/);
  t.notRegex(said, /^outside$/m);
  t.is(readFileSync(join(top, "outside"), "utf8"), "outside\n");
  t.is(readFileSync(join(data, "of-root"), "utf8"), "secret of root\n");
  t.is(lstatSync(join(data, "of-root")).uid, 0);
  t.is(lstatSync(join(data, "of-root")).mode & 0o7777, 0o600);
  t.true(readdirSync(data).includes("tool"), said);
  const all = readdirSync(data, { recursive: true, encoding: "utf8" });
  for (const name of all) {
    const { mode, uid } = lstatSync(join(data, name));
    t.false([0o020000, 0o060000].includes(mode & 0o170000), `${name} is no device`);
    t.is(mode & 0o6000, 0, `${name} lends no rights`);
    if (!["absolute", "up", "of-root", "linked"].includes(name)) t.is(uid, owner, name);
  }
});

test.serial("what serves it has no right of any kind, and writes in its directory alone", (t) => {
  const [pid = 0, ...others] = servers();
  t.deepEqual(others, []);
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
    t.regex(status, new RegExp(`^${set}:\\t0+$`, "m"), set);
  t.regex(status, new RegExp(`^Uid:(?:\\t${owner}){4}$`, "m"));
  t.regex(status, new RegExp(`^Gid:(?:\\t${owner}){4}$`, "m"));
  t.regex(status, /^Groups:\t ?$/m);
  t.regex(status, /^NoNewPrivs:\t1$/m);
  t.regex(status, /^Seccomp_filters:\t3$/m);
  const mounts = readFileSync(`/proc/${pid}/mountinfo`, "latin1").trim().split("\n");
  const written = mounts.filter((line) => / rw,\S*/.test(line.split(" - ")[0] ?? ""));
  t.is(written.length, 1);
  t.regex(written[0] ?? "", / rw,nosuid,nodev,noexec/);
});

test.serial("a container goes on to write while podnetd is gone, and after", async (t) => {
  const serving = servers();
  await shell("(while :; do date +%s%N > /data/now; sleep 0.1; done) > /dev/null 2>&1 &");
  cri[Symbol.dispose]();
  await rig.daemon.kill();
  const at = readFileSync(join(data, "now"), "utf8");
  for (let i = 0; i < 100 && readFileSync(join(data, "now"), "utf8") === at; i++)
    spawnSync("sleep", ["0.1"]);
  t.not(readFileSync(join(data, "now"), "utf8"), at);
  await rig.restart("kill");
  cri = openCri(join(top, "cri.sock"));
  t.deepEqual(servers(), serving);
  t.is(await shell("echo three > /data/deep/file; cat /read/file"), "three");
});

test.serial("with its sandbox goes what serves it, and the files stay", async (t) => {
  await cri.runtime.removePodSandbox({ podSandboxId });
  t.deepEqual(servers(), []);
  t.is(readFileSync(join(data, "deep/file"), "utf8"), "three\n");
  t.deepEqual((await rig.client.pods.list({})).pods, []);
});
