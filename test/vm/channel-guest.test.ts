import { createHash, randomBytes } from "node:crypto";
import test from "ava";
import { parseCidr, parseIp, parseIpPrefix } from "../../core/address.ts";
import type { ExecSession } from "../../guest-init/channel/guest.ts";
import { type GuestSession, openGuest } from "../../guest-init/channel/session.ts";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";
import type { RunningVm } from "../../hypervisor/driver.ts";
import { ownNetns } from "../lab/netns.ts";
import { debianGuest, never, nicPlan, plugTap, rig } from "./hypervisor-rig.ts";

test.before(async () => await ownNetns());

const open = (vm: RunningVm, reattach: boolean): GuestSession =>
  openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach,
  });

const nic = nicPlan(1);
const config: GuestConfig = {
  requestId: "r1",
  hostname: "pod-one",
  dns: { servers: [parseIp("10.44.0.53")], search: ["pods.test"], options: ["ndots:2"] },
  interfaces: [
    {
      mac: nic.mac,
      name: "net0",
      mtu: 1400,
      addresses: [parseIpPrefix("10.44.0.2/24"), parseIpPrefix("fd44::2/64")],
    },
  ],
  routes: [
    { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("10.44.0.1"), interface: "net0" },
    { destination: parseCidr("::/0"), gateway: parseIp("fd44::1"), interface: "net0" },
  ],
  neighbours: [],
  waitMs: 10_000,
  clockMs: Date.UTC(2031, 0, 1),
  entropy: "ab".repeat(64),
};

async function text(session: ExecSession): Promise<{ text: string; data: Buffer; code: number }> {
  const parts: Uint8Array[] = [];
  let code = -1;
  for await (const event of session.events)
    if (event.kind === "exit") code = event.code;
    else parts.push(event.data);
  const data = Buffer.concat(parts);
  return { text: data.toString(), data, code };
}

const command = (...args: string[]) => ({ args, env: {}, workdir: "/", terminal: false });

test.serial("one guest's life, over virtio-serial", async (t) => {
  t.timeout(120_000);
  await using it = await rig(debianGuest);
  const { vm } = await it.start();
  const guest = open(vm, false);
  const lost = new Promise<Error>((resolve) => guest.onClose(resolve));
  t.like(await guest.ready(AbortSignal.timeout(60_000)), { api: 4244, extension: 1 });

  // The configuration is there before the NIC, and answered as soon as that is plugged.
  const configured = guest.configure(config, never);
  await plugTap(vm, nic);
  const observed = await configured;
  const net0 = observed.interfaces.find(({ mac }) => mac === nic.mac);
  t.like(net0, { name: "net0", mtu: 1400, up: true });
  t.deepEqual([...(net0?.addresses ?? [])].sort(), ["10.44.0.2/24", "fd44::2/64"] as never);
  t.is(observed.hostname, "pod-one");
  t.deepEqual(observed.dns, config.dns);
  t.true(Math.abs(observed.clockMs - Date.UTC(2031, 0, 1)) < 60_000);
  t.true(observed.agentRssKib > 100);

  const echo = await text(await guest.exec(command("/bin/busybox", "hostname"), never));
  t.deepEqual([echo.text, echo.code], ["pod-one\n", 0]);

  const data = randomBytes(10_000_000);
  const start = performance.now();
  const cat = await guest.exec(command("/bin/busybox", "cat"), never);
  const back = text(cat);
  await cat.write(data);
  await cat.closeInput();
  const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
  t.is(digest((await back).data), digest(data));
  t.log(`${(10_000 / (performance.now() - start)).toFixed(1)} MB/s there and back`);

  const many = Array.from({ length: 20 }, async (_, i) => {
    const session = await guest.exec(command("/bin/busybox", "echo", `number ${i}`), never);
    return (await text(session)).text;
  });
  t.deepEqual(
    await Promise.all(many),
    Array.from({ length: 20 }, (_, i) => `number ${i}\n`),
  );

  // The daemon goes in the middle of things, and another comes: no READY, nothing confused.
  const sleeping = await guest.exec(command("/bin/busybox", "sleep", "1000"), never);
  const waiting = guest.configure({ ...config, waitMs: 0 }, never);
  waiting.catch(() => {});
  await guest.close();
  t.like(await lost, { code: "CANCELLED" });
  await t.throwsAsync(text(sleeping), { code: "CANCELLED" });
  const second = open(vm, true);
  t.like(await second.ready(AbortSignal.timeout(10_000)), { extension: 1 });
  const again = await second.configure({ ...config, requestId: "r2" }, never);
  t.deepEqual(again.interfaces, observed.interfaces);
  t.is((await text(await second.exec(command("/bin/busybox", "echo", "on"), never))).text, "on\n");

  const pings = 100;
  const before = performance.now();
  for (let i = 0; i < pings; i++) await second.ping(never);
  t.log(`ping ${((performance.now() - before) / pings).toFixed(2)} ms`);

  // The guest restarts: READY again, over the same sockets, and the network is to be set up anew.
  const anew = new Promise((resolve) => second.onReady(resolve));
  const reboot = await second.exec(command("/bin/busybox", "reboot", "-f"), never);
  await t.throwsAsync(text(reboot), { code: "AGENT_DISCONNECTED" });
  t.like(await anew, { extension: 1 });
  const third = await second.configure({ ...config, requestId: "r3" }, never);
  t.is(third.interfaces.find(({ mac }) => mac === nic.mac)?.name, "net0");

  const ended = new Promise((resolve) => second.onClose(resolve));
  await second.powerOff(never);
  await ended;
  await vm.stop({ graceMs: 5000 });
});

// Our agent is a hyperstart too; on a real kernel what it acknowledged can be read back.
test.serial("the same guest, taken for a plain hyperstart", async (t) => {
  t.timeout(120_000);
  await using it = await rig(debianGuest);
  const { vm } = await it.start();
  const guest = openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach: false,
    extension: false,
  });
  t.like(await guest.ready(AbortSignal.timeout(60_000)), { api: 4244, extension: undefined });
  const plain: GuestConfig = {
    ...config,
    interfaces: [
      { mac: nic.mac, name: "net0", mtu: 1400, addresses: [parseIpPrefix("10.44.0.2/24")] },
    ],
    routes: [
      { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("10.44.0.1"), interface: "net0" },
      { destination: parseCidr("172.20.0.0/16"), gateway: parseIp("10.44.0.9"), interface: "net0" },
    ],
  };
  await t.throwsAsync(guest.configure(config, never), { code: "UNSUPPORTED" });
  const configured = guest.configure(plain, never);
  await plugTap(vm, nic);
  const observed = await configured;
  const net0 = { name: "net0", mtu: 1400, up: true, addresses: ["10.44.0.2/24"] as never };
  t.like(
    observed.interfaces.find(({ mac }) => mac === nic.mac),
    net0,
  );
  for (const route of plain.routes)
    t.true(
      observed.routes.some(
        (r) => r.destination === route.destination && r.gateway === route.gateway,
      ),
      JSON.stringify(observed.routes),
    );
  t.true(observed.clockMs > 0);
  t.true(observed.agentRssKib > 100);

  // A change of name and address flushes routes; they are there again afterwards.
  const changed: GuestConfig = {
    ...plain,
    interfaces: [
      { mac: nic.mac, name: "net1", mtu: 1300, addresses: [parseIpPrefix("10.44.0.3/24")] },
    ],
    routes: plain.routes.map((route) => ({ ...route, interface: "net1" })),
  };
  const after = await guest.configure(changed, never);
  t.like(
    after.interfaces.find(({ mac }) => mac === nic.mac),
    { name: "net1", mtu: 1300, addresses: ["10.44.0.3/24"] as never },
  );
  t.true(after.routes.some((r) => r.destination === "172.20.0.0/16" && r.interface === "net1"));

  // What the kernel refuses is found out: no such network.
  const lost = parseCidr("10.99.0.0/16");
  await t.throwsAsync(
    guest.configure(
      {
        ...changed,
        routes: [{ destination: lost, gateway: parseIp("10.98.0.1"), interface: "net1" }],
      },
      never,
    ),
    { code: "AGENT_REFUSED" },
  );

  const cat = await guest.exec(command("/bin/busybox", "cat"), never);
  const data = randomBytes(5000);
  const back = text(cat);
  await cat.write(data);
  await cat.closeInput();
  t.deepEqual((await back).data, data);

  // Found again, it has its pod already.
  await guest.close();
  const second = openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach: true,
    extension: false,
  });
  const same = await second.configure(changed, never);
  t.deepEqual(same.interfaces, after.interfaces);
  await second.powerOff(never);
  await vm.stop({ graceMs: 5000 });
});
