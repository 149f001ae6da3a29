import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import type { Border } from "../../core/crossing.ts";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";
import { type Kind, readTrace } from "./trace.ts";

/** Every system call by which a process can change something outside of itself, and what tells files and sockets apart. */
const traced = [
  "execve,clone,clone3,fork,vfork,kill,tkill,tgkill,pidfd_send_signal",
  "write,writev,pwrite64,pwritev,sendto,sendmsg,sendmmsg,connect,bind,accept4,ioctl,close",
  "open,openat,creat,truncate,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2",
  "unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat",
  "chmod,fchmod,fchmodat,chown,fchown,fchownat,lchown,utimensat,setxattr,fsetxattr",
  "copy_file_range,sendfile,splice,mount,umount2,setns,unshare,pivot_root,chroot",
].join();

test("strace of a start, a create, a delete and the way down shows no call outside of a crossing", async (t) => {
  t.timeout(120_000);
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-strace-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const trace = path.join(directory, "trace");
  const recordFile = path.join(directory, "record");
  const words = (text: string): string[] => text.split(" ");
  const to = ["-e", `trace=${traced}`, "-o", trace];
  await using lab = await openLab("strace-");
  const daemon = await startPodnetd({
    machine: lab.host,
    directory,
    config: await standInConfig(path.join(directory, "vm")),
    env: { PODNET_FAILPOINTS: `record:${recordFile}` },
    // Strings long enough for a crossing's name; a signal is seen as the call that sends it.
    through: ["strace", ...words("-f --seccomp-bpf -qq -yy -s 200 -e signal=none"), ...to],
  });
  await using _daemon = daemon;
  const client = connectPodnet({ socket: daemon.socket });
  t.teardown(() => client.close());
  await client.pods.create({ spec: { name: "one" } });
  await client.pods.delete({ idOrName: "one" });
  await client.node.down({});
  await new Promise((resolve) => daemon.process.once("exit", resolve));

  const text = readFileSync(trace, "utf8");
  const files = { recordFile, logFile: path.join(directory, "podnetd.log") };
  const { naked, covered } = readTrace(text, files);
  t.deepEqual(naked, []);
  t.log(Object.fromEntries(covered));
  // All of these happened, or the trace would prove nothing.
  const kinds: readonly Kind[] = [
    "netlink",
    "device",
    "child",
    "file",
    "name",
    "qmp",
    "channel",
    "stdin",
  ];
  for (const kind of kinds) t.true((covered.get(kind) ?? 0) > 0, `no call of kind ${kind}`);
  // Each border's crossings are needed: taken away, its calls are found.
  const needed: readonly Border[] = [
    "netlink",
    "ioctl",
    "command",
    "commit",
    "file",
    "spawn",
    "socket",
    "qmp",
    "channel",
  ];
  for (const without of needed)
    t.true(readTrace(text, { ...files, without }).naked.length > 0, `${without} is not needed`);
});
