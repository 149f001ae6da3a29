import { createHash } from "node:crypto";
import { once } from "node:events";
import { createConnection } from "node:net";
import test from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { parseObservedGuest } from "../../guest-init/protocol/extension-messages.ts";
import { hostHasSteadyTsc } from "../../hypervisor/argv/accelerator.ts";
import { run } from "../../linux/processes/command.ts";
import { openTap } from "../../linux/tun.ts";
import { AgentPeer } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";
import { type Rig, type Vm, debianGuest, never, nicPlan, rig } from "./hypervisor-rig.ts";

let it: Rig;
let running: Vm;
let guest: AgentPeer;

async function connect(vm: Vm["vm"]): Promise<AgentPeer> {
  const [control, tty] = await Promise.all(
    (["channel", "tty"] as const).map(async (name) => {
      const socket = createConnection(vm.socketPath(name));
      await once(socket, "connect");
      return socket;
    }),
  );
  if (control === undefined || tty === undefined) throw new Error("No channels");
  return new AgentPeer(control, tty);
}

test.before(async () => {
  await ownNetns();
  it = await rig(debianGuest);
  running = await it.start();
  guest = await connect(running.vm);
  // It has no reader yet; the port keeps it.
  guest.control.write(encodeCtlFrame(command.ping));
  await guest.ready();
});
test.after.always(async () => {
  guest?.hangUp();
  await it?.[Symbol.asyncDispose]();
});

const shell = async (script: string): Promise<string> =>
  (await guest.run(["sh", "-c", script])).stdout.toString().trim();
const isAck = { code: command.ack };

test.serial("what was sent before READY is thrown away", async (t) => {
  const version = await guest.ack(command.getVersion);
  t.is(version.length, 4, "the answer to this command, not to an earlier one");
});

test.serial("it is PID 1, everything is mounted, 0, 1 and 2 are open", async (t) => {
  t.is(await shell("readlink /proc/1/exe"), "/init");
  const mounted = await shell("cut -d' ' -f2,3 /proc/mounts");
  for (const one of [
    "/proc proc",
    "/sys sysfs",
    "/dev devtmpfs",
    "/dev/pts devpts",
    "/dev/shm tmpfs",
    "/run tmpfs",
    "/tmp tmpfs",
  ])
    t.true(mounted.split("\n").includes(one), one);
  t.is(await shell("ls -l /proc/1/fd/0 | sed 's/.*-> //'"), "/dev/console");
  t.is(await shell("readlink /dev/fd"), "/proc/self/fd");
});

test.serial("the modules pods need are loaded, and the console is silent", async (t) => {
  const loaded = await shell("cut -d' ' -f1 /proc/modules");
  for (const name of ["virtio_pci", "virtio_console", "virtio_net", "virtio_blk", "virtio_rng"])
    t.true(loaded.split("\n").includes(name), name);
  t.is(Buffer.from(running.vm.consoleTail()).toString().replaceAll("\r", "").trim(), "");
});

test.serial("the kernel hurries where links wait for it", async (t) => {
  t.is(await shell("cat /sys/kernel/rcu_expedited"), "1");
});

test.serial("the kernel does not wake up to compact memory or to compare clocks", async (t) => {
  t.is(await shell("cat /proc/sys/vm/compaction_proactiveness"), "0");
  t.is((await shell("cat /proc/cmdline")).includes("tsc=nowatchdog"), hostHasSteadyTsc());
});

test.serial("it goes before those it wakes, and they begin as usual", async (t) => {
  t.is(await shell("cut -d' ' -f19 /proc/1/stat; cut -d' ' -f19 /proc/self/stat"), "-20\n0");
});

test.serial("orphans are reaped", async (t) => {
  // The middle process ends first: its child becomes PID 1's.
  await shell("sh -c 'sleep 0.1 & exec true'; sleep 0.3");
  t.is(await shell("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null"), "");
});

test.serial("the clock and the random pool are set", async (t) => {
  const clockMs = Date.UTC(2031, 0, 2, 3, 4, 5);
  const config = { requestId: "c", interfaces: [], routes: [], neighbours: [], waitMs: 0 };
  const entropy = "a5".repeat(32);
  const observed = parseObservedGuest(
    await guest.ack(command.configure, { ...config, clockMs, entropy, hostname: "clocked" }),
  );
  t.true(observed.clockMs >= clockMs && observed.clockMs < clockMs + 10_000);
  t.is(await shell("date -u +%Y-%m-%dT%H:%M"), "2031-01-02T03:04");
  t.is(await shell("hostname"), "clocked");
});

test.serial("a NIC asked for before it is plugged is configured as it comes", async (t) => {
  const nic = nicPlan(1);
  await using tap = openTap(nic.tap);
  await run(["ip", "link", "add", "name", "host0", "type", "bridge"]);
  await run(["ip", "address", "add", "10.5.0.1/24", "dev", "host0"]);
  await run(["ip", "address", "add", "fd00::1/64", "dev", "host0", "nodad"]);
  await run(["ip", "link", "set", "dev", "host0", "up"]);
  await run(["ip", "link", "set", "dev", nic.tap, "up", "master", "host0"]);
  const config = {
    requestId: "nic",
    interfaces: [
      { mac: nic.mac, name: "net0", mtu: 1400, addresses: ["10.5.0.2/24", "fd00::2/64"] },
    ],
    routes: [{ destination: "0.0.0.0/0", gateway: "10.5.0.1", interface: "net0" }],
    neighbours: [],
    waitMs: 20_000,
  };
  const answer = guest.ack(command.configure, config);
  const begin = performance.now();
  await running.vm.plug(nic, tap.fds, never);
  const observed = parseObservedGuest(await answer);
  await run(["ping", "-c", "1", "-W", "5", "10.5.0.2"]);
  t.log(`plug to first ping ${Math.round(performance.now() - begin)} ms`);
  // Neighbour discovery works at once too: the first solicitation is answered, a second comes after
  // a second.
  await run(["ping", "-c", "1", "-W", "0.9", "fd00::2"]);
  t.like(
    observed.interfaces.find(({ name }) => name === "net0"),
    { mac: nic.mac, mtu: 1400, up: true },
  );
  t.is(await shell("ping -c1 -W5 10.5.0.1 >/dev/null && echo ok"), "ok");

  // hyperstart's way to let go of it before it is unplugged.
  t.like(await guest.ask(command.deleteInterface, { device: "net0" }), isAck);
  t.is(await shell("ls /sys/class/net"), "lo");
  await running.vm.unplug(nic, never);
});

test.serial("it stays small", async (t) => {
  const rss = Number(await shell("sed -n 's/VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/1/status"));
  t.log(`${rss} KiB resident`);
  t.true(rss > 0 && rss < 2560);
});

test.serial("frames that end a hyperstart and its kernel do nothing here", async (t) => {
  guest.control.write(Uint8Array.of(0, 0, 0, 12, 0, 0, 0, 4));
  t.is((await guest.answer()).code, command.error);
  const tty = Buffer.alloc(5012);
  tty.writeUInt32BE(4711, 4);
  tty.writeUInt32BE(tty.length, 8);
  guest.tty.write(tty);
  guest.control.write(encodeCtlFrame(command.setupInterface, Buffer.from("{")));
  t.is((await guest.answer()).code, command.error);
  guest.control.write(encodeCtlFrame(command.ping, Buffer.alloc(500_000)));
  t.like(await guest.answer(), isAck);
  t.is(await shell("echo alive"), "alive");
});

test.serial("100 KB of output and input through the port, unharmed", async (t) => {
  const data = Buffer.from(Uint8Array.from({ length: 100_000 }, (_, i) => (i * 13) & 255));
  t.deepEqual((await guest.run(["cat"], {}, data)).stdout, data);
});

test.serial("megabytes of output through the port, unharmed", async (t) => {
  const script =
    "head -c 3000007 /dev/urandom > /tmp/much; cat /tmp/much; sha256sum < /tmp/much >&2";
  const { stdout, stderr } = await guest.run(["sh", "-c", script]);
  const digest = createHash("sha256").update(stdout).digest("hex");
  t.is(stdout.length, 3_000_007);
  t.is(stderr.toString().split(" ")[0], digest);
});

test.serial(
  "READY asks for a PCI rescan, ONLINECPUMEM for processors; both are acknowledged",
  async (t) => {
    t.like(await guest.ask(command.ready), isAck);
    t.like(await guest.ask(command.onlineCpuMem, null), isAck);
  },
);

test.serial(
  "a trap in the engine starts it over: READY comes again, the guest lives",
  async (t) => {
    const epoch = async (): Promise<string> =>
      (
        JSON.parse((await guest.ack(command.hello, { versions: [1], nonce: "n" })).toString()) as {
          epoch: string;
        }
      ).epoch;
    const before = await epoch();
    // The engine's own handler takes the signal for a stack used up. It comes when the agent has
    // said that it began.
    const { stdio } = await guest.begin(["sh", "-c", "read line; kill -SEGV 1"]);
    guest.write(stdio, Buffer.from("now\n"));
    await guest.ready();
    t.not(await epoch(), before);
    t.is(await shell("echo alive"), "alive");
    t.regex(Buffer.from(running.vm.consoleTail()).toString(), /starting over/);
  },
);

test.serial("a host that lets go and comes again is answered, without another READY", async (t) => {
  guest.hangUp();
  guest = await connect(running.vm);
  t.like(await guest.ask(command.ping), isAck);
});

test.serial("DESTROYPOD is acknowledged, then the machine is off", async (t) => {
  await guest.begin(["sleep", "1000"]);
  t.like(await guest.ask(command.destroyPod, null), isAck);
  await running.events.next("guest-shutdown");
  await running.events.next("exited");
  t.pass();
});
