import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { parseObservedGuest } from "../../guest-init/protocol/extension-messages.ts";
import { plugCommands } from "../../hypervisor/qemu/plug-commands.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { run } from "../../linux/command.ts";
import { openTap } from "../../linux/tun.ts";
import { AgentPeer } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";
import { nicPlan } from "./hypervisor-rig.ts";

const build = resolve(import.meta.dirname, "../../build");
const image = (name: string): string => join(build, "image-arm64", name);
const directory = mkdtempSync(join(tmpdir(), "podnet-arm64-"));

/** A machine of QEMU's `virt` with a port for one NIC; podnetd itself knows machines of x86_64 alone. */
const argv = [
  ["-M", "virt", "-cpu", "cortex-a57", "-accel", "tcg,tb-size=64", "-m", "256M"],
  ["-nodefaults", "-display", "none", "-serial", `file:${directory}/console`],
  ["-kernel", image("Image"), "-initrd", image("initramfs.gz")],
  // Without firmware there is no ACPI to hot-plug by: the kernel does it, as the ports themselves can.
  ["-append", "console=ttyAMA0 quiet panic=1 pcie_ports=native"],
  ["-device", "pcie-root-port,id=port1,chassis=1"],
  ["-device", "virtio-serial-pci,id=serial0"],
  ...["channel", "tty"].map((name, i) => [
    "-chardev",
    `socket,id=${name},path=${directory}/${name},server=on,wait=off`,
    "-device",
    `virtserialport,nr=${i + 1},chardev=${name},name=sh.hyper.channel.${i}`,
  ]),
  ["-qmp", `unix:${directory}/qmp,server=on,wait=off`],
].flat();

let machine: ChildProcess;
let qmp: QmpClient;
let guest: AgentPeer;

test.before(async (t) => {
  t.timeout(180_000);
  if (!existsSync(image("Image")))
    throw new Error(`There is no ${image("Image")}: run scripts/build-image --arch arm64`);
  await ownNetns();
  machine = spawn("qemu-system-aarch64", argv, { stdio: "inherit" });
  await once(machine, "spawn");
  for (let attempt = 1; attempt <= 300 && !existsSync(join(directory, "qmp")); attempt++)
    await delay(50);
  qmp = await QmpClient.open(join(directory, "qmp"));
  const [control, tty] = await Promise.all(
    ["channel", "tty"].map(async (name) => {
      const socket = createConnection(join(directory, name));
      await once(socket, "connect");
      return socket;
    }),
  );
  if (control === undefined || tty === undefined) throw new Error("No channels");
  guest = new AgentPeer(control, tty);
  await guest.ready();
});
test.after.always(async () => {
  guest?.hangUp();
  qmp?.[Symbol.dispose]();
  if (machine?.exitCode === null) {
    machine.kill("SIGKILL");
    await once(machine, "exit");
  }
  rmSync(directory, { recursive: true, force: true });
});

const shell = async (script: string): Promise<string> =>
  (await guest.run(["sh", "-c", script])).stdout.toString().trim();

test("the agent for arm64 is one static executable", (t) => {
  const bytes = readFileSync(join(build, "agent-arm64/podnet-guest"));
  t.is(bytes.toString("latin1", 0, 4), "\u007fELF");
  // EM_AARCH64, and no program header of type PT_INTERP.
  t.is(bytes.readUInt16LE(18), 183);
  const headers = Number(bytes.readBigUInt64LE(32));
  const types = Array.from({ length: bytes.readUInt16LE(56) }, (_, i) =>
    bytes.readUInt32LE(headers + i * bytes.readUInt16LE(54)),
  );
  t.true(types.length > 0 && !types.includes(3));
});

test.serial("it is PID 1 of an arm64, and runs programs", async (t) => {
  t.is(await shell("uname -m; readlink /proc/1/exe"), "aarch64\n/init");
  const { event, stderr } = await guest.run(["sh", "-c", "echo no >&2; exit 7"]);
  t.like({ status: event.status, stderr: stderr.toString() }, { status: 7, stderr: "no\n" });
  const bytes = Buffer.alloc(300_000, "0123456789abcdef");
  const { stdout } = await guest.run(["cat"], {}, bytes);
  t.true(stdout.equals(bytes));
});

/** Waits until no link but `lo` is there. */
async function unplugged(t: ExecutionContext): Promise<void> {
  for (let attempt = 1; attempt <= 60; attempt++) {
    if ((await shell("ls /sys/class/net")) === "lo") return;
    await delay(500);
  }
  t.fail("the NIC is still there");
}

test.serial(
  "a NIC that is plugged in is configured, of both families, and unplugged",
  async (t) => {
    t.timeout(120_000);
    const nic = nicPlan(1);
    await using tap = openTap(nic.tap);
    await run(["ip", "address", "add", "10.5.0.1/24", "dev", nic.tap]);
    await run(["ip", "address", "add", "fd00::1/64", "dev", nic.tap, "nodad"]);
    await run(["ip", "link", "set", "dev", nic.tap, "up"]);
    const answer = guest.ack(command.configure, {
      requestId: "nic",
      hostname: "arm",
      interfaces: [
        { mac: nic.mac, name: "net0", mtu: 1400, addresses: ["10.5.0.2/24", "fd00::2/64"] },
      ],
      routes: [{ destination: "0.0.0.0/0", gateway: "10.5.0.1", interface: "net0" }],
      neighbours: [],
      waitMs: 60_000,
    });
    // As podnetd does it: the ports of this machine are like those of a machine it is attached to.
    const plug = plugCommands({ ...nic, bus: "port1", slot: 0 });
    await qmp.passFd(nic.fdName, tap.fd);
    await qmp.execute("netdev_add", plug.netdev_add);
    await qmp.execute("device_add", plug.device_add);
    const observed = parseObservedGuest(await answer);
    t.is(observed.hostname, "arm");
    t.like(
      observed.interfaces.find(({ name }) => name === "net0"),
      { mac: nic.mac, mtu: 1400, up: true, addresses: ["10.5.0.2/24", "fd00::2/64"] },
    );
    await run(["ping", "-c", "1", "-W", "5", "10.5.0.2"]);
    await run(["ping", "-c", "1", "-W", "5", "fd00::2"]);
    t.is(await shell("ping -c1 -W5 10.5.0.1 >/dev/null && echo ok"), "ok");
    // The kernel gives whoever pressed the button five seconds to think better of it.
    await qmp.execute("device_del", { id: nic.nicId });
    await unplugged(t);
  },
);

test.serial("it powers off", async (t) => {
  const ended = once(machine, "exit");
  await guest.ack(command.destroyPod);
  await ended;
  t.is(machine.exitCode, 0);
});
