import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import type { ObservedGuest } from "../../guest-init/protocol/configure.ts";
import { parseObservedGuest } from "../../guest-init/protocol/extension-messages.ts";
import { run } from "../../linux/processes/command.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { FrameTap } from "../lab/frame-tap.ts";
import { ownNetns } from "../lab/netns.ts";

let host: AgentHost;

test.before(async () => {
  await ownNetns();
  host = await AgentHost.start();
});
test.after.always(() => host[Symbol.asyncDispose]());
test.beforeEach(async () => {
  for (const n of [1, 2]) await plug(n);
});
test.afterEach.always(async () => {
  for (const n of [1, 2, 3]) await run(["ip", "link", "del", `p${n}`], { okCodes: [0, 1] });
});

const macOf = (n: number): string => `52:54:00:00:00:0${n}`;

async function ip(words: string): Promise<string> {
  return (await run(["ip", ...words.split(" ")])).stdout;
}

/** A link with a known MAC, its other end up: what a hot-plugged NIC is to a guest. */
async function plug(n: number): Promise<void> {
  await ip(`link add d${n} address ${macOf(n)} type veth peer name p${n}`);
  await ip(`link set p${n} up`);
}

const base = { requestId: "r1", interfaces: [], routes: [], neighbours: [], waitMs: 500 };

async function configure(more: Record<string, unknown>): Promise<ObservedGuest> {
  return parseObservedGuest(await host.ack(command.configure, { ...base, ...more }));
}

async function refusal(more: object): Promise<{ message: string; field?: string; errno?: string }> {
  const { code, payload } = await host.ask(command.configure, { ...base, ...more });
  if (code !== command.error) throw new Error("It was not refused");
  return JSON.parse(payload.toString()) as { message: string; field?: string; errno?: string };
}

const eth0 = { mac: macOf(1), name: "eth0", mtu: 1450, addresses: ["10.1.0.2/24", "fd00::2/64"] };
const eth1 = { mac: macOf(2), name: "eth1", addresses: ["10.2.0.2/24"] };
const full = {
  interfaces: [eth0, eth1],
  routes: [
    { destination: "0.0.0.0/0", gateway: "10.1.0.1", interface: "eth0" },
    { destination: "::/0", gateway: "fd00::1", interface: "eth0" },
    { destination: "172.16.0.0/12", interface: "eth1", metric: 50 },
  ],
  neighbours: [{ interface: "eth1", address: "10.2.0.9", mac: "52:54:00:00:00:99" }],
  dns: { servers: ["10.0.0.53", "fd00::53"], search: ["a.b"], options: ["ndots:2"] },
  hostname: "pod-a",
};

const interfaceOf = (observed: ObservedGuest, name: string) =>
  observed.interfaces.find((one) => one.name === name);
const routesOf = (observed: ObservedGuest) =>
  observed.routes.map(({ destination, gateway }) => `${destination} ${gateway ?? ""}`.trim());

test.serial("everything at once, and what is observed is what was asked for", async (t) => {
  const observed = await configure(full);
  t.is(observed.requestId, "r1");
  t.is(observed.hostname, "pod-a");
  t.deepEqual(observed.dns as unknown, full.dns);
  t.like(interfaceOf(observed, "eth0"), { mac: macOf(1), mtu: 1450, up: true });
  t.deepEqual(interfaceOf(observed, "eth0")?.addresses as unknown, eth0.addresses);
  t.deepEqual(interfaceOf(observed, "eth1")?.addresses as unknown, eth1.addresses);
  for (const route of full.routes)
    t.true(
      observed.routes.some((there) => JSON.stringify({ ...there }) === JSON.stringify(route)),
      JSON.stringify(observed.routes),
    );
  t.true(observed.agentRssKib > 500 && observed.agentRssKib < 4096);
  t.true(Math.abs(observed.clockMs - Date.now()) < 5000);
  t.regex(await ip("neigh show dev eth1"), /10\.2\.0\.9 lladdr 52:54:00:00:00:99 PERMANENT/);
  // Usable at once: no duplicate detection.
  t.notRegex(await ip("-6 addr show dev eth0 scope global"), /tentative/);
});

test.serial("the same again changes nothing", async (t) => {
  const look = async (): Promise<string> =>
    (await ip("addr show")) + (await ip("route show table all"));
  await configure(full);
  // States of links and link-local addresses change for a second by themselves: they are not ours.
  const stable = (text: string): string =>
    text
      .replaceAll(/^(?:[0-9]+: |.*(?:fe80|ff00)).*$|valid_lft.*$/gm, "")
      // A link-local address that is ready adds a line, which is empty now.
      .replaceAll(/\n\s*\n/g, "\n");
  const before = stable(await look());
  await configure(full);
  t.is(stable(await look()), before);
});

test.serial(
  "another configuration: exactly its addresses, its routes, others' left alone",
  async (t) => {
    await configure(full);
    await ip("route add 192.0.2.0/24 via 10.1.0.7 dev eth0");
    const observed = await configure({
      interfaces: [{ ...eth0, addresses: ["10.1.0.3/24", "10.1.0.2/24"], mtu: 1400 }, eth1],
      routes: [{ destination: "0.0.0.0/0", gateway: "10.1.0.9", interface: "eth0" }],
    });
    t.deepEqual([...(interfaceOf(observed, "eth0")?.addresses ?? [])].toSorted(), [
      "10.1.0.2/24",
      "10.1.0.3/24",
    ]);
    t.is(interfaceOf(observed, "eth0")?.mtu, 1400);
    const routes = routesOf(observed);
    t.true(routes.includes("0.0.0.0/0 10.1.0.9"));
    t.true(routes.includes("192.0.2.0/24 10.1.0.7"), "a route that is not ours stays");
    t.false(routes.includes("172.16.0.0/12"));
    t.false(routes.includes("::/0 fd00::1"));
  },
);

test.serial(
  "what links of CNI plugins have alongside: no ARP, and routes' attributes",
  async (t) => {
    const routes = [
      { destination: "0.0.0.0/0", gateway: "10.1.0.1", interface: "eth0", mtu: 1300, advmss: 1200 },
      { destination: "10.9.0.0/16", interface: "eth0", source: "10.1.0.2" },
      { destination: "fd09::/64", interface: "eth0", source: "fd00::2", mtu: 1300 },
    ];
    const plain = await configure({ interfaces: [eth0] });
    t.false(JSON.stringify(plain).includes("source"), "an earlier host is notified of none");
    // A link that is up already, and again.
    for (const _time of [1, 2]) {
      const observed = await configure({ interfaces: [{ ...eth0, noArp: true }], routes });
      t.true(interfaceOf(observed, "eth0")?.noArp);
      for (const route of routes)
        t.true(
          observed.routes.some((there) => JSON.stringify(there) === JSON.stringify(route)),
          JSON.stringify(observed.routes),
        );
    }
    t.regex(await ip("link show eth0"), /<[^>]*NOARP[^>]*>/);
    t.regex(await ip("route show default"), /mtu 1300 advmss 1200/);
    t.regex(await ip("route show 10.9.0.0/16"), /src 10\.1\.0\.2/);
  },
);

test.serial("an interface that is not named is left alone", async (t) => {
  await configure(full);
  const observed = await configure({ interfaces: [eth0], routes: [] });
  t.deepEqual(interfaceOf(observed, "eth1")?.addresses as unknown, eth1.addresses);
  t.true(routesOf(observed).includes("172.16.0.0/12"));
});

test.serial("a NIC that was plugged under another MAC gets its own, and is set up", async (t) => {
  const own = "52:54:00:00:00:21";
  const taken = { ...eth0, mac: own, pluggedAs: macOf(1) };
  const observed = await configure({ ...full, interfaces: [taken, eth1] });
  t.like(interfaceOf(observed, "eth0"), { mac: own as never, up: true, mtu: 1450 });
  t.deepEqual(interfaceOf(observed, "eth0")?.addresses as unknown, eth0.addresses);
  const again = await configure({ ...full, interfaces: [taken, eth1] });
  t.deepEqual(again.interfaces, observed.interfaces);
});

test.serial("the MAC of the interface itself is preferred to that of its template", async (t) => {
  const observed = await configure({ interfaces: [{ ...eth0, pluggedAs: macOf(2) }] });
  t.is(interfaceOf(observed, "eth0")?.mac, macOf(1) as never);
  t.true(observed.interfaces.some(({ mac }) => mac === (macOf(2) as never)));
});

test.serial(
  "a parked interface is down, with nothing on it, under the MAC it is to have",
  async (t) => {
    await configure(full);
    const mac = "52:54:00:00:00:22";
    const parked = { mac, pluggedAs: macOf(1), parked: true, name: "spare", addresses: [] };
    const observed = await configure({ interfaces: [parked] });
    t.like(interfaceOf(observed, "spare"), { mac: mac as never, up: false });
    t.deepEqual(interfaceOf(observed, "spare")?.addresses, []);
    t.false(routesOf(observed).includes("0.0.0.0/0 10.1.0.1"));
    const again = await configure({ ...full, interfaces: [{ ...eth0, pluggedAs: mac }, eth1] });
    t.like(interfaceOf(again, "eth0"), { mac: macOf(1) as never, up: true });
    t.true(routesOf(again).includes("0.0.0.0/0 10.1.0.1"));
  },
);

test.serial("names can be swapped, and taken from a link that no request names", async (t) => {
  await configure(full);
  const swapped = await configure({
    interfaces: [
      { ...eth0, name: "eth1" },
      { ...eth1, name: "eth0" },
    ],
  });
  t.is(interfaceOf(swapped, "eth1")?.mac, macOf(1) as never);
  t.is(interfaceOf(swapped, "eth0")?.mac, macOf(2) as never);
  t.deepEqual(interfaceOf(swapped, "eth1")?.addresses as unknown, eth0.addresses);
  const taken = await configure({ interfaces: [{ ...eth1, name: "p1" }] });
  t.is(interfaceOf(taken, "p1")?.mac, macOf(2) as never);
  await ip(`link del ${taken.interfaces.find(({ name }) => name.startsWith("was"))?.name}`);
  await ip("link del p1");
});

test.serial("an interface is waited for until it is plugged", async (t) => {
  const answer = configure({
    interfaces: [{ mac: macOf(3), name: "eth3", addresses: ["10.3.0.2/24"] }],
    waitMs: 20_000,
  });
  await plug(3);
  t.deepEqual(interfaceOf(await answer, "eth3")?.addresses as unknown, ["10.3.0.2/24"]);
});

test.serial(
  "an interface that does not come: its field, and the others' state as it was",
  async (t) => {
    const { message, field } = await refusal({
      interfaces: [eth0, { mac: macOf(9), name: "eth9", addresses: [] }],
      waitMs: 50,
    });
    t.is(field, "interfaces[1].mac");
    t.is(message, `No interface with MAC ${macOf(9)} came within 50 ms`);
    t.regex(await ip("addr show"), /d1@/);
  },
);

test.serial("what the kernel refuses comes with its name and words", async (t) => {
  t.like(
    await refusal({
      interfaces: [eth0],
      routes: [{ destination: "0.0.0.0/0", gateway: "10.77.0.1", interface: "eth0" }],
    }),
    { errno: "ENETUNREACH" },
  );
  t.like(await refusal({ routes: [{ destination: "0.0.0.0/0", interface: "none0" }] }), {
    field: "routes[0].interface",
  });
  t.like(await refusal({ interfaces: [{ ...eth0, mtu: 1 }] }), { field: "interfaces[0].mtu" });
  t.like(await refusal({ unknown: 1 }), { field: "unknown" });
});

test.serial("each address is announced, by ARP and by neighbour advertisement", async (t) => {
  const [p1] = JSON.parse(await ip("-j link show p1")) as [{ ifindex: number }];
  using tap = FrameTap.open(p1.ifindex);
  await configure({ interfaces: [eth0] });
  const arp = await tap.next((frame) => frame.readUInt16BE(12) === 0x0806);
  // Broadcast, from the NIC; request; sender and target are the address.
  t.is(arp.toString("hex", 0, 12), `ffffffffffff${macOf(1).replaceAll(":", "")}`);
  t.is(arp.toString("hex", 28, 32), "0a010002");
  t.is(arp.toString("hex", 38, 42), "0a010002");
  const advertised = await tap.next(
    (frame) => frame.readUInt16BE(12) === 0x86dd && frame[54] === 136,
  );
  t.is(advertised.toString("hex", 0, 6), "333300000001");
  t.is(advertised.toString("hex", 62, 78), `fd00${"0".repeat(27)}2`);
  t.is(advertised[58], 0x20, "override");
  t.is(advertised.toString("hex", 78, 86), `0201${macOf(1).replaceAll(":", "")}`);
});

test.serial(
  "lo gets exactly the addresses that are named, alongside its own, and answers at them",
  async (t) => {
    const held = async (): Promise<string[]> =>
      [...(await ip("-o address show dev lo")).matchAll(/inet6? (\S+)/g)]
        .map(([, prefix = ""]) => prefix)
        .toSorted();
    const own = await held();
    const two = await configure({ loopback: ["10.7.0.1/32", "fd07::1/128"] });
    t.deepEqual(two.loopback?.toSorted(), ["10.7.0.1/32", "fd07::1/128"] as never);
    t.deepEqual(await held(), [...own, "10.7.0.1/32", "fd07::1/128"].toSorted());
    // (A worker of the kernel's makes the route of an IPv6 address, on a busy host a little later.)
    for (const address of ["10.7.0.1", "fd07::1"])
      await run(["ping", "-c", "1", "-w", "5", address]);
    t.is((await configure({})).loopback, undefined, "not named is left alone");
    t.deepEqual((await held()).length, own.length + 2);
    t.deepEqual((await configure({ loopback: ["10.7.0.2/32"] })).loopback, [
      "10.7.0.2/32",
    ] as never);
    t.deepEqual(await held(), [...own, "10.7.0.2/32"].toSorted());
    t.deepEqual((await configure({ loopback: [] })).loopback, []);
    t.deepEqual(await held(), own);
  },
);

test.serial("lo is up again, with its addresses, when something takes it down", async (t) => {
  const shown = (): Promise<string> => ip("-o address show dev lo up");
  await configure({ loopback: ["10.7.0.1/32", "fd07::1/128"] });
  const before = await shown();
  t.true(before.includes("fd07::1/128"));
  // A second time too: it is kept, not mended once.
  for (const time of ["first", "second"]) {
    await ip("link set lo down");
    let now = "";
    // The kernel itself removes the IPv6 addresses with the link: once they are back, the agent has
    // acted.
    for (let i = 0; i < 200 && now.length !== before.length; i++) {
      await delay(25);
      now = await shown();
    }
    t.deepEqual(now.split("\n").toSorted(), before.split("\n").toSorted(), time);
  }
  await run(["ping", "-c", "1", "-W", "1", "fd07::1"]);
  await configure({ loopback: [] });
});

test.serial(
  "default routes of one family differ in their metric, and one that changes takes the former's place",
  async (t) => {
    const through = (name: string, gateway: string, metric?: number) => ({
      destination: "0.0.0.0/0",
      gateway,
      interface: name,
      ...(metric === undefined ? {} : { metric }),
    });
    const defaults = async (): Promise<string[]> =>
      (await ip("route show default"))
        .trim()
        .split("\n")
        .map((line) => line.replace(/ proto.*?(?= metric|$)/, "").trim());
    const both = { interfaces: [eth0, eth1] };
    const first = through("eth0", "10.1.0.1");
    await configure({ ...both, routes: [first, through("eth1", "10.2.0.1", 50)] });
    t.deepEqual(await defaults(), [
      "default via 10.1.0.1 dev eth0",
      "default via 10.2.0.1 dev eth1 metric 50",
    ]);
    await ip("route add 172.20.0.0/16 via 10.1.0.9");
    await configure({ ...both, routes: [first, through("eth1", "10.2.0.1", 60)] });
    t.deepEqual(await defaults(), [
      "default via 10.1.0.1 dev eth0",
      "default via 10.2.0.1 dev eth1 metric 60",
    ]);
    await configure({
      ...both,
      routes: [through("eth0", "10.1.0.1", 70), through("eth1", "10.2.0.1")],
    });
    t.deepEqual(await defaults(), [
      "default via 10.2.0.1 dev eth1",
      "default via 10.1.0.1 dev eth0 metric 70",
    ]);
    t.regex(await ip("route show 172.20.0.0/16"), /via 10.1.0.9/, "the guest's own stays");
  },
);
