import { once } from "node:events";
import { createConnection } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { run } from "../../linux/processes/command.ts";
import { openTap } from "../../linux/tun.ts";
import { AgentPeer } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";
import { type Rig, type Vm, debianGuest, never, nicPlan, rig } from "./hypervisor-rig.ts";

let it: Rig;
let running: Vm;
let guest: AgentPeer;
const nic = nicPlan(1);

async function connect(vm: Vm["vm"]): Promise<AgentPeer> {
  const open = async (name: "channel" | "tty") => {
    const socket = createConnection(vm.socketPath(name));
    await once(socket, "connect");
    return socket;
  };
  return new AgentPeer(await open("channel"), await open("tty"));
}

test.before(async () => {
  await ownNetns();
  it = await rig(debianGuest);
  running = await it.start();
  guest = await connect(running.vm);
  await guest.ready();
  const tap = openTap(nic.tap);
  await run(["ip", "link", "set", "dev", nic.tap, "up"]);
  await running.vm.plug(nic, tap.fds, never);
  await tap[Symbol.asyncDispose]();
  await guest.ack(command.setupInterface, {
    device: "eth0",
    ipAddresses: [{ ipAddress: "10.1.0.2", netMask: "24" }],
  });
});
test.after.always(async () => {
  guest?.hangUp();
  await it?.[Symbol.asyncDispose]();
});

const shell = async (script: string): Promise<string> =>
  (await guest.run(["sh", "-c", script])).stdout.toString().trim();

const epoch = async (): Promise<string> =>
  (
    JSON.parse((await guest.ack(command.hello, { versions: [1], nonce: "n" })).toString()) as {
      epoch: string;
    }
  ).epoch;

/** Milliseconds that a command takes until it is acknowledged. */
async function took(t: ExecutionContext, what: string, code: number, payload: object) {
  const begin = performance.now();
  await guest.ack(code, payload);
  const ms = Math.round(performance.now() - begin);
  t.log(`${what}: ${ms} ms`);
  return ms;
}

/** How many. A short run still takes several messages to the kernel (test/unit counts them). */
const many =
  process.env["PODNET_TEST_FULL"] === "1"
    ? { routes: 400, addresses: 1000 }
    : { routes: 200, addresses: 300 };

test.serial("hundreds of routes and addresses in one command, and all of them again", async (t) => {
  const routes = Array.from({ length: many.routes }, (_, i) => ({
    dest: `172.${16 + (i >> 8)}.${i & 255}.0/24`,
    gateway: "10.1.0.1",
    device: "eth0",
  }));
  const first = await took(t, `${many.routes} routes`, command.setupRoute, { routes });
  t.is(await shell("ip route | grep -c 'via 10.1.0.1'"), `${many.routes}`);
  // runv sends all routes again with each change.
  const again = await took(t, `${many.routes} routes again`, command.setupRoute, { routes });
  t.true(again < 8 * first + 500, `${again} ms after ${first} ms`);
  const other = routes.map((route) => ({ ...route, gateway: "10.1.0.9" }));
  await took(t, `${many.routes} routes by another gateway`, command.setupRoute, { routes: other });
  t.is(await shell("ip route | grep -c 'via 10.1.0.9'"), `${many.routes}`);
  t.is(await shell("ip route | grep -c 'via 10.1.0.1'"), "0");
  const addresses = (minus: string) => ({
    device: "eth0",
    ipAddresses: Array.from({ length: many.addresses }, (_, i) => ({
      ipAddress: `${minus}10.2.${i >> 8}.${i & 255}`,
      netMask: "32",
    })),
  });
  const count = "ip addr show dev eth0 | grep -c 'inet 10.2.'";
  await took(t, `${many.addresses} addresses`, command.setupInterface, addresses(""));
  t.is(await shell(count), `${many.addresses}`);
  await took(t, `${many.addresses} addresses again`, command.setupInterface, addresses(""));
  await took(t, `${many.addresses} addresses removed`, command.setupInterface, addresses("-"));
  t.is(await shell(count), "0");
});

test.serial("JSON nested 100,000 deep is refused, and what runs runs on", async (t) => {
  const before = await epoch();
  const { stdio } = await guest.begin(["cat"]);
  const deep = ["[", '{"a":', '["[", '].map((part) => Buffer.from(part.repeat(100_000)));
  const codes = [command.setupRoute, command.execCmd, command.startPod, command.configure];
  for (const payload of deep)
    for (const code of codes) t.is((await guest.ask(code, payload)).code, command.error);
  guest.write(stdio, Buffer.from("still here\n"));
  await guest.output(stdio, "still here");
  guest.end(stdio);
  await guest.ended(`p${stdio}`);
  t.is(await epoch(), before, "the agent's process is the one of before");
  // Brackets in a text are none of the message's own.
  const { stdout } = await guest.run(["echo", "[".repeat(1000), '\\"{'.repeat(100)]);
  t.is(stdout.toString(), `${"[".repeat(1000)} ${'\\"{'.repeat(100)}\n`);
});

test.serial(
  "half a frame, a hang-up, and a host that is back within 100 ms: it is answered at once",
  async (t) => {
    for (const length of [4, 20]) {
      guest.control.write(encodeCtlFrame(command.ping, Buffer.alloc(100)).subarray(0, length));
      await delay(30);
      guest.hangUp();
      await delay(30);
      guest = await connect(running.vm);
      const answer = guest.ask(command.ping);
      const late = delay(4000, "no answer", { ref: false });
      t.like(await Promise.race([answer, late]), { code: command.ack }, `after ${length} bytes`);
      t.is(await shell("echo alive"), "alive");
    }
  },
);

test.serial("a NUL in a name is refused: it is not the interface of a shorter name", async (t) => {
  const mtu = await shell("cat /sys/class/net/eth0/mtu");
  const name = "eth0\0x";
  for (const [code, payload] of [
    [command.setupInterface, { device: name, mtu: 1300 }],
    [command.setupInterface, { device: "eth0", newDeviceName: "lan0\0x" }],
    [command.setupRoute, { routes: [{ dest: "10.77.0.0/16", device: name }] }],
    [command.deleteInterface, { device: name }],
    [command.readFile, { container: "hyperstart", file: "/etc/passwd\0x" }],
    [command.startPod, { interfaces: [{ device: name, mtu: 1300 }] }],
  ] as const)
    t.is((await guest.ask(code, payload)).code, command.error, JSON.stringify(payload));
  t.is(await shell("cat /sys/class/net/eth0/mtu"), mtu);
  t.is(await shell("ip route | grep -c 10.77"), "0");
});

test.serial("a rename that fails is refused, and every route is there again", async (t) => {
  await guest.ack(command.setupRoute, {
    routes: [
      { dest: "default", gateway: "10.1.0.1", device: "eth0" },
      { dest: "10.78.0.0/16", device: "eth0" },
    ],
  });
  await shell("ip -6 route add default via fe80::1 dev eth0");
  const before = await shell("ip route | sort; ip -6 route | sort");
  t.regex(before, /default via 10[^]*default via fe80::1/);
  const answer = await guest.ask(command.setupInterface, { device: "eth0", newDeviceName: "lo" });
  t.is(answer.code, command.error);
  t.is(await shell("ip route | sort; ip -6 route | sort"), before);
});
