import test from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { run } from "../../linux/processes/command.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";

let host: AgentHost;

test.before(async () => {
  await ownNetns();
  host = await AgentHost.start();
});
test.after.always(() => host[Symbol.asyncDispose]());
test.beforeEach(() => ip("link add d0 type veth peer name p0"));
test.afterEach.always(async () => {
  await ip("link del p0");
});

const isAck = { code: command.ack };
const isError = { code: command.error };

async function ip(words: string): Promise<string> {
  return (await run(["ip", ...words.split(" ")])).stdout;
}

interface Shown {
  readonly ifname: string;
  readonly mtu: number;
  readonly flags: readonly string[];
  readonly addr_info: readonly {
    readonly local: string;
    readonly prefixlen: number;
    readonly scope: string;
  }[];
}

async function show(name: string): Promise<Shown> {
  const [found] = JSON.parse(await ip(`-j addr show dev ${name}`)) as Shown[];
  return found as Shown;
}

const addresses = async (name: string): Promise<string[]> =>
  (await show(name)).addr_info
    .filter(({ scope }) => scope === "global")
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);

const routes = async (family = "-4"): Promise<string[]> =>
  (await ip(`${family} route show`))
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");

const setup = (more: object) => host.ask(command.setupInterface, { device: "d0", ...more });
const route = (...list: object[]) => host.ask(command.setupRoute, { routes: list });

test.serial("the old flat form and the list, every form of mask", async (t) => {
  t.like(await setup({ ipAddress: "10.1.0.2", netMask: "255.255.255.0" }), isAck);
  t.like(await setup({ ipAddresses: [{ ipAddress: "10.2.0.2", netMask: "16" }] }), isAck);
  t.like(await setup({ ipAddresses: [{ ipAddress: "10.3.0.2", netMask: "0x18" }] }), isAck);
  t.like(
    await setup({
      newDeviceName: "",
      ipAddresses: [
        { ipAddress: "10.4.0.2", netMask: "255.255.254.0" },
        { ipAddress: "fd00::2", netMask: "64" },
        { ipAddress: "fd01::2", netMask: "0x30" },
      ],
      mtu: 0,
    }),
    isAck,
  );
  t.deepEqual((await addresses("d0")).toSorted(), [
    "10.1.0.2/24",
    "10.2.0.2/16",
    "10.3.0.2/24",
    "10.4.0.2/23",
    "fd00::2/64",
    "fd01::2/48",
  ]);
  t.true((await show("d0")).flags.includes("UP"));
});

test.serial("a leading minus takes an address away; twice is as good as once", async (t) => {
  await setup({ ipAddress: "10.1.0.2", netMask: "24" });
  t.like(await setup({ ipAddress: "10.1.0.2", netMask: "24" }), isAck);
  for (let i = 0; i < 2; i++) {
    t.like(await setup({ ipAddresses: [{ ipAddress: "-10.1.0.2", netMask: "24" }] }), isAck);
    t.deepEqual(await addresses("d0"), []);
  }
});

test.serial("what is wrong is refused, and nothing is done", async (t) => {
  for (const wrong of [
    { ipAddress: "10.1.0.2", netMask: "255.0.255.0" },
    { ipAddress: "10.1.0.2", netMask: "33" },
    { ipAddress: "10.1.0.256", netMask: "24" },
    { mtu: 67 },
    { mtu: 65536 },
    { newDeviceName: "a-name-that-is-too-long" },
    { newDeviceName: "p0" },
    { unknown: 1 },
  ])
    t.like(await setup(wrong), isError, JSON.stringify(wrong));
  t.like(await host.ask(command.setupInterface, {}), isError);
  t.deepEqual(await addresses("d0"), []);
});

test.serial("MTU and addresses of a live link leave its routes alone", async (t) => {
  await ip("link set p0 up");
  await setup({ ipAddress: "10.1.0.2", netMask: "24" });
  t.like(await route({ dest: "default", gateway: "10.1.0.1", device: "d0" }), isAck);
  t.like(await setup({ newDeviceName: "", ipAddresses: [], mtu: 1300 }), isAck);
  t.like(await setup({ ipAddresses: [{ ipAddress: "10.9.0.2", netMask: "24" }], mtu: 0 }), isAck);
  t.is((await show("d0")).mtu, 1300);
  t.true((await routes()).includes("default via 10.1.0.1 dev d0"));
});

test.serial("a rename of a live link puts routes and IPv6 addresses back", async (t) => {
  await ip("link set p0 up");
  await setup({
    ipAddresses: [
      { ipAddress: "10.1.0.2", netMask: "24" },
      { ipAddress: "fd00::2", netMask: "64" },
    ],
  });
  t.like(
    await route(
      { dest: "default", gateway: "10.1.0.1" },
      { dest: "172.20.0.0/16", device: "d0" },
      { dest: "default", gateway: "fd00::1" },
    ),
    isAck,
  );
  t.like(await setup({ newDeviceName: "eth5", mtu: 1400 }), isAck);
  t.like(await show("eth5"), { ifname: "eth5", mtu: 1400 });
  t.deepEqual(await addresses("eth5"), ["10.1.0.2/24", "fd00::2/64"]);
  const four = await routes();
  t.true(four.includes("default via 10.1.0.1 dev eth5"));
  t.true(four.includes("172.20.0.0/16 dev eth5 scope link"));
  t.true((await routes("-6")).some((line) => line.startsWith("default via fd00::1 dev eth5")));
});

test.serial("every spelling of a route; the same again is success", async (t) => {
  await ip("link set p0 up");
  await setup({ ipAddress: "10.1.0.2", netMask: "24" });
  for (const dest of ["0.0.0.0/0", "default", "any", "all"]) {
    t.like(await route({ dest, gateway: "10.1.0.1", device: "d0" }), isAck);
    t.deepEqual(
      (await routes()).filter((line) => line.startsWith("default")),
      ["default via 10.1.0.1 dev d0"],
    );
  }
  t.like(await route({ dest: "172.20.0.0/255.255.0.0", device: "d0" }), isAck);
  t.like(await route({ dest: "172.21.0.5", device: "d0" }), isAck);
  const now = await routes();
  t.true(now.includes("172.20.0.0/16 dev d0 scope link"));
  t.true(now.includes("172.21.0.5 dev d0 scope link"));
});

test.serial("another gateway to the same place takes its place: ACK means applied", async (t) => {
  await ip("link set p0 up");
  await setup({ ipAddress: "10.1.0.2", netMask: "24" });
  await route({ dest: "default", gateway: "10.1.0.1" });
  t.like(await route({ dest: "default", gateway: "10.1.0.9" }), isAck);
  t.deepEqual(
    (await routes()).filter((line) => line.startsWith("default")),
    ["default via 10.1.0.9 dev d0"],
  );
});

test.serial(
  "routes that cannot be are errors with the kernel's words; none is valid",
  async (t) => {
    const unreachable = await route({ dest: "default", gateway: "10.99.0.1" });
    t.is(unreachable.code, command.error);
    t.regex(unreachable.payload.toString(), /ENETUNREACH \(Nexthop has invalid gateway\)/);
    for (const wrong of [
      { gateway: "10.1.0.1" },
      { dest: "any", gateway: "" },
      { dest: "10.0.0.1/8" },
    ])
      t.like(await route(wrong), isError);
    t.like(await host.ask(command.setupRoute, {}), isAck);
    t.like(await host.ask(command.setupRoute, { routes: [] }), isAck);
  },
);

test.serial("400 routes in one frame", async (t) => {
  await ip("link set p0 up");
  await setup({ ipAddress: "10.1.0.2", netMask: "24" });
  const many = Array.from({ length: 400 }, (_, i) => ({
    dest: `172.${16 + (i >> 8)}.${i & 255}.0/24`,
    gateway: "10.1.0.1",
  }));
  t.like(await route(...many), isAck);
  t.is((await routes()).filter((line) => line.includes("via 10.1.0.1")).length, 400);
});

test.serial(
  "a device is waited for; meanwhile processes run, and answers keep their order",
  async (t) => {
    const streams = await host.begin(["sh", "-c", "read line; echo $line"]);
    host.control.write(frame(command.setupInterface, { device: "late0", mtu: 1234 }));
    host.control.write(frame(command.ping, {}));
    // The process is served while the first command waits.
    const reply = new Promise<void>((resolve) => host.tty.once("data", () => resolve()));
    host.write(streams.stdio, Buffer.from("served\n"));
    await reply;
    await ip("link add late0 type veth peer name latep");
    t.is((await show("late0")).ifname, "late0");
    const codes = [];
    for (let i = 0; i < 2; i++) codes.push((await host.answer()).code);
    t.deepEqual(codes, [command.ack, command.ack]);
    t.is((await show("late0")).mtu, 1234);
    await ip("link del late0");
  },
);

test.serial("a device that does not come is an error", async (t) => {
  const answer = await host.ask(command.setupRoute, { routes: [{ dest: "any", device: "none0" }] });
  t.is(answer.code, command.error);
  t.is(answer.payload.toString(), 'There is no interface "none0"\0');
});

test.serial("DELETEINTERFACE of what is no PCI device is refused", async (t) => {
  t.like(await host.ask(command.deleteInterface, { device: "d0" }), isError);
  t.is((await show("d0")).ifname, "d0");
});

function frame(code: number, payload: object): Buffer {
  const body = Buffer.from(JSON.stringify(payload));
  const header = Buffer.alloc(8);
  header.writeUInt32BE(code, 0);
  header.writeUInt32BE(8 + body.length, 4);
  return Buffer.concat([header, body]);
}
