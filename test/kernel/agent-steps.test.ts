import { readFileSync } from "node:fs";
import test from "ava";
import {
  aloneParkedNicOf,
  configurationOf,
  type ParkedNic,
  parkedNicOf,
} from "../../guest-init/channel/parked.ts";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import type { GuestConfig, ObservedGuest } from "../../guest-init/protocol/configure.ts";
import {
  encodeGuestConfig,
  parseGuestConfig,
  parseObservedGuest,
} from "../../guest-init/protocol/extension-messages.ts";
import { encodeJson } from "../../guest-init/protocol/fields.ts";
import {
  encodeSteps,
  parseStepResults,
  type Step,
  type StepResults,
} from "../../guest-init/protocol/steps.ts";
import { run } from "../../linux/processes/command.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";

let host: AgentHost;

test.before(async () => {
  await ownNetns();
  host = await AgentHost.start();
  // An agent that has agreed on the extension carries steps out before its engine sees them.
  await host.ack(command.hello, { versions: [1], nonce: "n" });
});
test.after.always(() => host[Symbol.asyncDispose]());
// The other end is elsewhere: the guest has one NIC.
test.beforeEach(async () => {
  await ip("netns add elsewhere");
  await ip(`link add d1 address ${template} type veth peer name p1 netns elsewhere`);
  await ip("-n elsewhere link set p1 up");
});
test.afterEach.always(async () => {
  await ip("link del dev eth0");
  await ip("netns del elsewhere");
});

async function ip(words: string): Promise<string> {
  return (await run(["ip", ...words.split(" ")], { okCodes: [0, 1] })).stdout;
}

const template = "52:54:00:00:00:01";
const rehearsed = "52:54:00:00:00:02";
const own = "52:54:00:00:00:03";

const configOf = (nic: object, more: object = {}): GuestConfig => {
  const base = { requestId: "r1", routes: [], neighbours: [], waitMs: 500 };
  return parseGuestConfig(encodeJson({ ...base, interfaces: [nic], ...more }));
};
const rehearsal = configOf({
  mac: rehearsed,
  pluggedAs: template,
  name: "eth0",
  addresses: ["192.0.2.2/24"],
});
const parkedFrom = (pluggedAs: string): GuestConfig =>
  configOf({ mac: template, pluggedAs, name: "eth0", parked: true, addresses: [] });
const park = parkedFrom(rehearsed);

const byMessage = async (config: GuestConfig): Promise<ObservedGuest> =>
  parseObservedGuest(await host.ack(command.configure, encodeGuestConfig(config)));

const carryOut = async (steps: readonly Step[]): Promise<StepResults> =>
  parseStepResults(await host.ack(command.steps, encodeSteps(steps)));

async function bySteps(config: GuestConfig, nic: ParkedNic): Promise<ObservedGuest | undefined> {
  const stepped = configurationOf(config, nic);
  return stepped && stepped.observed(await carryOut(stepped.steps));
}

/** Rehearses and parks as machines of the pool do. */
async function parked(): Promise<ParkedNic> {
  await byMessage(rehearsal);
  const nic = parkedNicOf(rehearsal, park, await byMessage(park));
  if (nic === undefined) throw new Error("It is not parked");
  return nic;
}

const nic = { mac: own, pluggedAs: template, name: "eth0", mtu: 1400 };
const ipv4 = { ...nic, addresses: ["10.1.0.2/24"] };
const gateway = { destination: "0.0.0.0/0", gateway: "10.1.0.1", interface: "eth0" };

/** Of what is observed, all but what changes by itself. */
const lasting = ({ clockMs: _clock, agentRssKib: _rss, ...rest }: ObservedGuest) => rest;

for (const { title, config } of [
  { title: "IPv4", config: configOf(ipv4, { routes: [gateway], hostname: "stepped" }) },
  {
    title: "both families, a gateway that another route leads to, a neighbour, attributes",
    config: configOf(
      { ...nic, addresses: ["10.1.0.2/32", "fd00::2/64"] },
      {
        routes: [
          { ...gateway, source: "10.1.0.2", mtu: 1300 },
          { destination: "10.1.0.1/32", interface: "eth0" },
          { destination: "::/0", gateway: "fd00::1", interface: "eth0", metric: 7 },
        ],
        neighbours: [{ interface: "eth0", address: "10.1.0.1", mac: rehearsed }],
      },
    ),
  },
  { title: "no address", config: configOf({ ...nic, addresses: [] }) },
] as const)
  test.serial(`steps and a message have the same end: ${title}`, async (t) => {
    const stepped = await bySteps(config, await parked());
    const shown = await ip("-d address show dev eth0");
    const neighbours = await ip("neighbour show dev eth0 nud permanent");
    t.truthy(stepped);
    t.is(stepped?.interfaces[0]?.mac as string, own);
    t.true((stepped?.agentRssKib ?? 0) > 500);
    t.true(Math.abs((stepped?.clockMs ?? 0) - Date.now()) < 20_000);
    await byMessage(parkedFrom(own));
    const sent = await byMessage(config);
    t.deepEqual(lasting(sent), lasting(stepped as ObservedGuest));
    const noLifetime = (text: string): string => text.replaceAll(/group \S+|qlen \d+/g, "");
    t.is(noLifetime(await ip("-d address show dev eth0")), noLifetime(shown));
    t.is(await ip("neighbour show dev eth0 nud permanent"), neighbours);
    if (title === "IPv4")
      t.is(readFileSync("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "utf8"), "1\n");
  });

test.serial("a NIC that was parked before it was ever up needs no more than steps", async (t) => {
  await ip("link set lo down");
  const config = configOf(ipv4, { routes: [gateway], hostname: "cloned" });
  const asTemplate = configOf({ mac: template, name: "eth0", parked: true, addresses: [] });
  const found = aloneParkedNicOf(await byMessage(asTemplate));
  const stepped = found && (await bySteps(config, found));
  t.deepEqual(stepped?.interfaces[0]?.addresses.map(String), ipv4.addresses);
  t.is(readFileSync("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "utf8"), "1\n");
  t.is(readFileSync("/proc/sys/net/ipv6/conf/eth0/accept_ra", "utf8"), "0\n");
  t.regex(await ip("link show dev lo"), /[<,]UP[,>]/);
  await byMessage(parkedFrom(own));
  const sent = await byMessage(config);
  t.deepEqual(lasting(sent), lasting(stepped as ObservedGuest));
});

test.serial("names of a clone are for the guest's first process alone", async (t) => {
  const twin = { kind: "twin", epoch: "another", machineId: "0".repeat(32) } as const;
  t.deepEqual(await carryOut([twin]), { done: [], errno: 1 });
});

test.serial("what the kernel refuses is no configuration: a message has to say why", async (t) => {
  const unreachable = configOf(ipv4, { routes: [{ ...gateway, gateway: "10.9.9.9" }] });
  t.is(await bySteps(unreachable, await parked()), undefined);
  await t.throwsAsync(byMessage(unreachable), { message: /was refused.*ENETUNREACH/ });
});

const ostype = { kind: "read-file", path: "/proc/sys/kernel/ostype" } as const;
const stepsFrame = (...steps: readonly Step[]): Uint8Array =>
  encodeCtlFrame(command.steps, encodeSteps(steps));
const results = async (): Promise<string[]> => {
  const { code, payload } = await host.answer();
  return code === command.ack ? parseStepResults(payload).done.map(String) : ["refused"];
};

test.serial(
  "steps come in pieces, and among other commands: answers are in their order",
  async (t) => {
    const ping = encodeCtlFrame(command.ping);
    const one = stepsFrame(ostype);
    const two = stepsFrame(ostype, ostype);
    host.control.write(Buffer.concat([one, two, ping, one, ping, two]));
    t.deepEqual(await results(), ["Linux\n"]);
    t.deepEqual(await results(), ["Linux\n", "Linux\n"]);
    t.is((await host.answer()).payload.length, 0);
    t.deepEqual(await results(), ["Linux\n"]);
    t.is((await host.answer()).payload.length, 0);
    t.deepEqual(await results(), ["Linux\n", "Linux\n"]);
    for (const cut of [3, 8, 11, one.length - 1]) {
      host.control.write(Buffer.concat([two, one.subarray(0, cut)]));
      t.deepEqual(await results(), ["Linux\n", "Linux\n"]);
      host.control.write(Buffer.concat([one.subarray(cut), two]));
      t.deepEqual(await results(), ["Linux\n"]);
      t.deepEqual(await results(), ["Linux\n", "Linux\n"]);
    }
    // More than is read at once.
    const many = Array.from({ length: 1500 }, () => ostype);
    host.control.write(Buffer.concat([stepsFrame(...many), one]));
    t.is((await results()).length, 1500);
    t.deepEqual(await results(), ["Linux\n"]);
  },
);

test.serial("what is no step is refused, and none before it is done", async (t) => {
  const whole = encodeSteps([{ kind: "hostname", name: "never" }, ostype]);
  const wrong: readonly (readonly number[])[] = [
    [0, 0, 0, 15],
    [0, 0, 0, 0x11, 7],
    [0, 0, 0, 0x81, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
    [0, 0, 0, 0x12, 0],
    [0, 0, 0, 0x14, 0x61],
    [0, 0, 0, 0x17, 0],
    [0, 0, 0, 0x00],
    [0, 0, 0x20, 0x10, ...Array.from({ length: 513 }, () => 1)],
    [0, 0, 0, 0x28, 0x61, 0x62],
    [0xff, 0xff, 0xff, 0xf5],
    [0, 0],
  ];
  for (const bytes of wrong) {
    host.control.write(
      encodeCtlFrame(command.steps, Buffer.concat([whole, Uint8Array.from(bytes)])),
    );
    t.deepEqual(await results(), ["refused"], bytes.slice(0, 12).join());
  }
  t.not(readFileSync("/proc/sys/kernel/hostname", "utf8"), "never\n");
  host.control.write(encodeCtlFrame(command.steps));
  t.deepEqual(await results(), []);
});

test.serial("the first step that fails is the last one", async (t) => {
  await parked();
  const { done, errno } = await carryOut([
    { kind: "read-file", path: "/proc/sys/kernel/ostype" },
    { kind: "read-file", path: "/proc/none" },
    { kind: "write-file", path: "/proc/none", text: "1" },
    { kind: "hostname", name: "never" },
  ]);
  t.deepEqual(done.map(String), ["Linux\n", ""]);
  t.is(errno, 2);
  t.not(readFileSync("/proc/sys/kernel/hostname", "utf8"), "never\n");
});

test.serial("a list longer than the agent's buffer is handed on whole", async (t) => {
  const nicNow = await parked();
  const config = configOf(ipv4);
  await ip("link set dev eth0 up");
  await run([
    "sh",
    "-c",
    "for a in $(seq 0 3); do for b in $(seq 1 250); do echo address add 10.7.$a.$b/32 dev eth0; done; done | ip -batch -",
  ]);
  const observed = await bySteps(config, nicNow);
  t.is(observed?.interfaces[0]?.addresses.length, 1001);
});
