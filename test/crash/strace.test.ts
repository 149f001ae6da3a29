import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";
import { readTrace } from "./trace.ts";

/**
 * Every system call by which a process can change something outside of itself, and what tells files and sockets apart.
 * (strace 6.1 knows no fchmodat2 yet: `?` is if it does.)
 */
const traced = [
  "execve,clone,clone3,fork,vfork,kill,tkill,tgkill,pidfd_send_signal",
  "write,writev,pwrite64,pwritev,pwritev2,io_uring_setup,io_uring_enter,sendto,sendmsg,sendmmsg,connect,bind,accept4,ioctl,close",
  "open,openat,openat2,creat,truncate,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2",
  "unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat",
  "chmod,fchmod,fchmodat,?fchmodat2,chown,fchown,fchownat,lchown,utimensat,setxattr,fsetxattr",
  "copy_file_range,sendfile,splice,mount,umount2,setns,unshare,pivot_root,chroot",
].join();

/** Kinds and borders that a start, a create, a delete and the way down have; nobody is signalled meanwhile. */
const kinds = ["netlink", "device", "child", "file", "name", "qmp", "channel", "stdin"] as const;
const borders = [
  "netlink",
  "ioctl",
  "command",
  "commit",
  "file",
  "spawn",
  "socket",
  "qmp",
  "channel",
] as const;

const main = path.resolve(import.meta.dirname, "../../daemon/main.ts");

for (const [machines, config] of [
  ["stand-in machines", standInConfig],
  ["a confined QEMU", async () => '[qemu]\nconfine = "on"\n'],
] as const) {
  test.serial(
    `strace shows no call of podnetd outside of a crossing, with ${machines}`,
    async (t) => {
      t.timeout(120_000);
      const directory = mkdtempSync(path.join(tmpdir(), "podnet-strace-"));
      t.teardown(() => rmSync(directory, { recursive: true, force: true }));
      const trace = path.join(directory, "trace");
      const recordFile = path.join(directory, "record");
      await using lab = await openLab(`strace${machines.length}-`);
      // Strings long enough for a crossing's name. What podnetd executes is let go of: its children are other programs.
      const strace = `strace -f -b execve -qq -yy -s 200 -e signal=none -e trace=${traced} -o ${trace}`;
      const daemon = await startPodnetd({
        machine: lab.host,
        directory,
        config: await config(path.join(directory, "vm")),
        env: { PODNET_FAILPOINTS: `record:${recordFile}` },
        through: ["sh", "-c", `shift && exec ${strace} ${process.execPath} ${main} "$@"`, "sh"],
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
      for (const kind of kinds) t.true((covered.get(kind) ?? 0) > 0, `no call of kind ${kind}`);
      // Each border's crossings are needed: taken away, its calls are found.
      for (const without of borders)
        t.true(readTrace(text, { ...files, without }).naked.length > 0, `${without} is not needed`);
    },
  );
}
