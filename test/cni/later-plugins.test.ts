/**
 * What plugins after podnet's in a list, and runtimes after ADD, make of a container: podnetd looks
 * every second, and leaves it.
 */
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { until } from "../lab/until.ts";
import type { Machine } from "../lab/lab.ts";
import { type CniRig, openCniRig } from "./cni-rig.ts";
import { addList, callPlugin, deleteList, type Plugin } from "./run-list.ts";

const podnet: Plugin = { type: "podnet-cni" };
const gateway = "192.168.123.1";
const world = "198.51.100.1";
/** Some looks more than the one that finds the later plugins of a container done, milliseconds. */
const severalLooksMs = 3500;

const lists = {
  sbr: [podnet, { type: "sbr" }],
  mac: [podnet, { type: "tuning", mac: "02:11:22:33:44:55" }],
  mtu: [podnet, { type: "tuning", mtu: 1300 }],
  // What follows is not done by plugins of Debian's.
  macvtap: [podnet],
  laterMacvtap: [podnet],
  withoutDefault: [podnet],
} satisfies Record<string, readonly Plugin[]>;
type Name = keyof typeof lists;

interface Added {
  readonly container: Machine;
  // oxlint-disable-next-line typescript/no-explicit-any -- each test says what it looks for
  readonly result: any;
  readonly address: string;
  readonly mac: string;
}

let cni: CniRig;
/** The drift that podnetd reported since the containers were attached. */
const said: string[] = [];
const ended = new AbortController();
const added = {} as Record<Name, Added>;
const early: string[] = [];

async function attach(name: Name): Promise<void> {
  const container = await cni.container();
  const { ends, result } = await addList(cni, lists[name], container);
  if (ends.some(({ exit }) => exit !== 0)) throw new Error(JSON.stringify(ends));
  const [address] = result.ips[0].address.split("/");
  const mac = result.interfaces.find((each: { name: string }) => each.name === "eth0").mac;
  added[name] = { container, result, address, mac };
}

/**
 * What Kata's macvtap model does to a link that CNI made: a macvtap with its MAC, and its addresses
 * taken off.
 */
async function machineOn({ container, mac }: Added): Promise<void> {
  for (const command of [
    "link add link eth0 name tap0_kata type macvtap mode bridge",
    "link set tap0_kata address 02:00:00:00:00:99",
    "link set eth0 address 02:00:00:00:00:77",
    `link set tap0_kata address ${mac}`,
    "link set tap0_kata up",
    "-4 addr flush dev eth0",
  ])
    await container.run("ip", ...command.split(" "));
}

/** Asks as the machine on a macvtap would: whether the gateway answers. */
const machineReaches = async ({ container, address, mac }: Added): Promise<boolean> => {
  const program = `
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
s.bind(("tap0_kata", 0)); s.settimeout(2)
mac = bytes.fromhex("${mac}".replace(":", ""))
ip, to = socket.inet_aton("${address}"), socket.inet_aton("${gateway}")
s.send(b"\\xff" * 6 + mac + b"\\x08\\x06\\0\\x01\\x08\\0\\x06\\x04\\0\\x01" + mac + ip + b"\\0" * 6 + to)
while True:
    f = s.recv(2000)
    if f[20:22] == b"\\0\\x02" and f[28:32] == to and f[0:6] == mac:
        print("yes"); break`;
  return (await container.run("python3", "-c", program).catch(() => "")).includes("yes");
};

const mayChange = ({ container }: Added): boolean => cni.mayChange(container);

test.serial.before(async () => {
  cni = await openCniRig('firewall = "nftables"\nquarantine_s = 0\ndrift_s = 1\n');
  const { pods } = cni.rig.client;
  const { cursor } = await pods.list({});
  const events = pods.watch({ after: cursor }, { signal: ended.signal });
  void (async () => {
    for await (const { text } of events) said.push(text);
  })().catch(() => {});
  for (const name of Object.keys(lists) as Name[]) await attach(name);
  await machineOn(added.macvtap);
  await added.withoutDefault.container.run("ip", "route", "del", "default");
  // Whoever asks for CHECK at once finds what the list has made.
  for (const name of ["sbr", "mac", "mtu"] as const) {
    const { container, result } = added[name];
    const { exit, stdout } = await callPlugin(cni, "CHECK", podnet, container, {
      prevResult: result,
    });
    if (exit !== 0) early.push(`${name}: ${stdout}`);
  }
  await until(
    "all later plugins are done",
    () => Object.values(added).every((each) => !mayChange(each)),
    30_000,
  );
  await machineOn(added.laterMacvtap);
  await delay(severalLooksMs);
});
test.serial.after.always(async () => {
  ended.abort();
  await cni?.[Symbol.asyncDispose]();
});

const checks = async ({ container, result }: Added): Promise<string> => {
  const { exit, stdout } = await callPlugin(cni, "CHECK", podnet, container, {
    prevResult: result,
  });
  return exit === 0 ? "" : stdout;
};

/** Drift that was reported of a container. */
const driftOf = ({ result }: Added): string[] =>
  said.filter((text) => text.includes(`container port ${result.interfaces[1].name}`));

test.serial("a CHECK right after ADD takes what later plugins made for right", (t) => {
  t.deepEqual(early, []);
});

test.serial(
  "sbr: routes that were moved to a table stay there, and the container reaches the world",
  async (t) => {
    const { container, address } = added.sbr;
    t.regex(
      await container.run("ip", "route", "show", "table", "100"),
      /default via 192\.168\.123\.1/,
    );
    t.is(await container.run("ip", "route", "show", "default"), "");
    // A rule leads what has this address to the table.
    await container.run("ping", "-n", "-c", "1", "-W", "2", "-I", address, world);
    t.deepEqual(driftOf(added.sbr), []);
    t.is(await checks(added.sbr), "");
  },
);

test.serial("tuning: a MAC and an MTU that a later plugin set stay", async (t) => {
  for (const name of ["mac", "mtu"] as const) {
    const link = await added[name].container.run("ip", "link", "show", "eth0");
    t.regex(link, name === "mac" ? /02:11:22:33:44:55/ : /mtu 1300/);
    await added[name].container.ping(world);
    t.deepEqual(driftOf(added[name]), [], name);
    t.is(await checks(added[name]), "", name);
  }
});

for (const name of ["macvtap", "laterMacvtap"] as const)
  test.serial(`a machine on a macvtap keeps its address and MAC: ${name}`, async (t) => {
    const { container, address } = added[name];
    t.notRegex(await container.run("ip", "-4", "addr", "show", "eth0"), new RegExp(address));
    t.regex(await container.run("ip", "link", "show", "eth0"), /02:00:00:00:00:77/);
    t.true(await machineReaches(added[name]));
    t.deepEqual(driftOf(added[name]), []);
  });

test.serial(
  "a default route that a runtime took off after ADD stays away; an address that goes later is put back",
  async (t) => {
    const { container, address } = added.withoutDefault;
    t.is(await container.run("ip", "route", "show", "default"), "");
    t.is(await checks(added.withoutDefault), "");
    await container.run("ip", "addr", "flush", "dev", "eth0");
    await until("the address is back", async () =>
      (await container.run("ip", "-4", "addr", "show", "eth0")).includes(address),
    );
    await container.ping(gateway);
    t.is(await container.run("ip", "route", "show", "default"), "");
  },
);

test.serial(
  "what later plugins made outlives podnetd, and a pair that is lost comes back with it",
  async (t) => {
    await cni.rig.restart("kill");
    await delay(severalLooksMs);
    const { container } = added.mac;
    t.regex(await container.run("ip", "link", "show", "eth0"), /02:11:22:33:44:55/);
    t.is(await added.sbr.container.run("ip", "route", "show", "default"), "");
    await container.run("ip", "link", "del", "eth0");
    await until("the pair is back", async () => container.reaches(gateway));
    t.regex(await container.run("ip", "link", "show", "eth0"), /02:11:22:33:44:55/);
  },
);

test.serial("all of a list is taken back", async (t) => {
  for (const [name, { container, result }] of Object.entries(added))
    await deleteList(cni, lists[name as Name], container, result);
  await cni.gone(t);
});
