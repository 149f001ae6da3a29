import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { OverlayPhase } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { bodyOf, post } from "../cni/cni-rig.ts";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";
import { type Lab, labAddresses, machine, openLab } from "../lab/lab.ts";
import { neighbourMac, overlayPrefix } from "../lab/overlay-site.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { standInConfig } from "../lab/standin.ts";
import { until } from "../lab/until.ts";
import { readTrace } from "./trace.ts";

/**
 * Every system call by which a process can change something outside of itself, and what shows
 * which descriptors are files and which are sockets. (strace 6.1 knows no fchmodat2 yet: `?` is if
 * it does.)
 */
const traced = [
  "execve,clone,clone3,fork,vfork,kill,tkill,tgkill,pidfd_send_signal",
  "write,writev,pwrite64,pwritev,pwritev2,io_uring_setup,io_uring_enter,sendto,sendmsg,sendmmsg,connect,bind,accept4,ioctl,close",
  "open,openat,openat2,creat,truncate,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2",
  "unlink,unlinkat,rmdir,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat",
  "chmod,fchmod,fchmodat,?fchmodat2,chown,fchown,fchownat,lchown,utimensat,setxattr,fsetxattr",
  "copy_file_range,sendfile,splice,mount,umount2,setns,unshare,pivot_root,chroot",
].join();

/**
 * Kinds and boundaries that a start, a create, a delete and the way down have; no process is
 * signalled meanwhile.
 */
const kinds = [
  "netlink",
  "device",
  "child",
  "file",
  "database",
  "directory",
  "listener",
  "name",
  "qmp",
  "channel",
  "stdin",
] as const;
const boundaries = [
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

const main = path.resolve(import.meta.dirname, "../../daemon/main/main.ts");

/** A host that joins an overlay with another host in it, and leaves. */
const inOverlay = "stand-in machines, in an overlay";

for (const [machines, config] of [
  ["stand-in machines", standInConfig],
  ["a confined QEMU", async () => '[qemu]\nconfine = "on"\n'],
  [
    inOverlay,
    async (directory: string) => `${await standInConfig(directory)}
[overlay]
etcd.endpoints = ["http://${labAddresses.uplinkGateway}:2379"]
subnet_file = "${directory}/subnet.env"
masquerade = true
`,
  ],
] as const) {
  test.serial(
    `strace shows no call of podnetd outside of an effect, with ${machines}`,
    async (t) => {
      t.timeout(120_000);
      const directory = mkdtempSync(path.join(tmpdir(), "podnet-strace-"));
      t.teardown(() => rmSync(directory, { recursive: true, force: true }));
      const trace = path.join(directory, "trace");
      const recordFile = path.join(directory, "record");
      await using lab = await openLab(`strace${machines.length}-`);
      await using etcd = machines === inOverlay ? await openEtcd(lab) : undefined;
      // Strings long enough for an effect's name. What podnetd executes is let go of: its children
      // are other programs.
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
      if (etcd !== undefined)
        await until("the other host", async () => {
          const { overlays } = await client.overlays.list({});
          const { lines } = await client.overlays.diff({});
          return (
            overlays[0]?.phase === OverlayPhase.HELD &&
            overlays[0].peers === 1 &&
            lines.length === 0
          );
        });
      await client.pods.create({ spec: { name: "one" } });
      await client.pods.delete({ idOrName: "one" });
      if (machines === "stand-in machines") await useContainer(directory, client);
      if (etcd !== undefined) await client.overlays.leave({});
      await client.node.down({});
      await new Promise((resolve) => daemon.process.once("exit", resolve));

      const text = readFileSync(trace, "utf8");
      const files = { recordFile, logFile: path.join(directory, "podnetd.log") };
      const { naked, covered } = readTrace(text, files);
      t.deepEqual(naked, []);
      t.log(Object.fromEntries(covered));
      // All of these happened, or the trace would prove nothing.
      const overlays = etcd === undefined ? [] : (["etcd"] as const);
      for (const kind of [...kinds, ...overlays])
        t.true((covered.get(kind) ?? 0) > 0, `no call of kind ${kind}`);
      // Each boundary's effects are needed: taken away, its calls are found.
      for (const without of [...boundaries, ...overlays])
        t.true(readTrace(text, { ...files, without }).naked.length > 0, `${without} is not needed`);
    },
  );
}

/**
 * The plugin is installed, a container attached with all that it can have, looked at, taken off;
 * and the plugin goes.
 */
async function useContainer(directory: string, { cni }: Podnet): Promise<void> {
  const paths = { dir: path.join(directory, "net.d"), binDir: path.join(directory, "bin") };
  await cni.install(paths);
  const name = `traced-${process.pid}`;
  execFileSync("ip", ["netns", "add", name]);
  using _namespace = {
    [Symbol.dispose]: () => void execFileSync("ip", ["netns", "delete", name]),
  };
  const portMappings = [{ hostPort: 8084, containerPort: 80, protocol: "tcp" }];
  const bandwidth = { ingressRate: 80_000_000, egressRate: 80_000_000 };
  const config = { runtimeConfig: { portMappings, bandwidth } };
  const ask = async (command: string, more: object = {}): Promise<unknown> => {
    const body = bodyOf({ command, container: machine(name), config: { ...config, ...more } });
    const { text } = await post(path.join(directory, "run/cni.sock"), "/cni/v1", body);
    const { exit, stdout } = JSON.parse(text) as { exit: number; stdout: string };
    if (exit !== 0) throw new Error(stdout);
    return stdout === "" ? undefined : JSON.parse(stdout);
  };
  const prevResult = await ask("ADD");
  await ask("CHECK", { prevResult });
  await ask("DEL");
  await until("its end", async () => (await cni.list({})).attachments.length === 0);
  await cni.uninstall({});
}

async function openEtcd({ internet }: Lab): Promise<EtcdLab> {
  const etcd = await startEtcd({ addresses: [labAddresses.uplinkGateway], machines: [internet] });
  const put = (key: string, value: object): Promise<string> =>
    etcd.etcdctl("put", `${overlayPrefix}/${key}`, JSON.stringify(value));
  const Backend = { Type: "vxlan", VNI: 7 };
  await put("config", { Network: "10.77.0.0/16", SubnetMax: "10.77.199.0", Backend });
  const BackendData = { VNI: 7, VtepMAC: neighbourMac(201) };
  const other = { PublicIP: "198.51.100.201", BackendType: "vxlan", BackendData };
  await put("subnets/10.77.201.0-24", other);
  return etcd;
}
