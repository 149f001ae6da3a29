import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { labAddresses, type Machine } from "../lab/lab.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

const lab = join(import.meta.dirname, "../lab");
const servers: ChildProcess[] = [];
let rig: Rig;
/** What the internet's name server was asked, and by whom. */
let heard = "";
/** Everything there was before the pods. */
let atFirst: string;

const config = `quarantine_s = 0
drift_s = 1
[network]
cidr = "10.30.0.0/24"
cidr6 = "fd00:30::/64"
[dns]
upstreams = ["203.0.113.1", "${labAddresses.internet}"]
`;
const gateways = ["10.30.0.1", "fd00:30::1"] as const;
const alone = { name: "alone", subnets: [{ cidr: "10.31.0.0/24" }], isolated: true };
/** Its own servers, and no resolver. */
const plain = {
  name: "plain",
  subnets: [{ cidr: "10.32.0.0/24" }],
  dns: [labAddresses.internet],
  dnsSearch: ["plain.example"],
  resolver: false,
};

// One daemon serves this whole file, and its pods live from test to test.
test.serial.before(async () => {
  rig = await openRig(config);
  await serveNames(rig.lab.internet);
  atFirst = await rig.inventory();
  for (const spec of [alone, plain]) await rig.client.networks.create({ spec });
  for (const [name, network] of [
    ["web", "default"],
    ["db", "default"],
    ["cell", "alone"],
    ["cell2", "alone"],
    ["bare", "plain"],
  ] as const)
    await rig.client.pods.create({ spec: { name, interfaces: [{ network }] } });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  for (const server of servers) server.kill("SIGKILL");
});

async function serveNames(machine: Machine): Promise<void> {
  const program = join(lab, "name-server.ts");
  const child = machine.spawn([process.execPath, program, labAddresses.internet]);
  servers.push(child);
  child.stdout?.on("data", (text: Buffer) => {
    heard += text.toString();
  });
  for (let nth = 0; nth < 200; nth++) {
    if ((await machine.run("ss", "-Hltn", "sport = :53")).includes(":53")) return;
    await delay(50);
  }
  throw new Error("No name server");
}

/** What a pod's nslookup says, alongside of whom it asked. */
async function lookUp(pod: string, ...words: readonly string[]): Promise<string> {
  const { output } = await execIn(rig.client, pod, "nslookup", ...words);
  return output.replace(/^Server:.*\nAddress:.*\n/, "");
}

/** The addresses it found. */
async function found(pod: string, ...words: readonly string[]): Promise<string[]> {
  const said = await lookUp(pod, ...words);
  return [...said.matchAll(/^Address: (\S+)$/gm)].map(([, ip = ""]) => ip).toSorted();
}

/** Asks from a machine of the lab: see test/lab/name-asker.ts. */
async function ask(machine: Machine, way: "udp" | "tcp", server: string): Promise<string> {
  const words = [way, server, "web.podnet", "A"];
  return (await machine.run(process.execPath, join(lab, "name-asker.ts"), ...words)).trim();
}

async function addressesOf(pod: string): Promise<string[]> {
  const { interfaces = [] } = (await rig.client.pods.get({ idOrName: pod })).pod ?? {};
  return interfaces.flatMap(({ addresses }) => addresses.map((each) => each.replace(/\/.*/, "")));
}

test.serial("a guest asks its gateways, and searches among the pods", async (t) => {
  const { output } = await execIn(rig.client, "web", "cat", "/etc/resolv.conf");
  const lines = [...gateways.map((ip) => `nameserver ${ip}`), "search podnet"];
  t.is(output, lines.map((line) => `${line}\n`).join(""));
});

test.serial(
  "pods of a network find each other by name, forward and reverse, v4 and v6",
  async (t) => {
    for (const [asker, other] of [
      ["web", "db"],
      ["db", "web"],
    ] as const) {
      const addresses = await addressesOf(other);
      t.is(addresses.length, 2);
      for (const gateway of gateways)
        for (const name of [other, `${other}.podnet`, `${other.toUpperCase()}.PODNET`])
          t.deepEqual(
            await found(asker, name, gateway),
            addresses.toSorted(),
            `${name} ${gateway}`,
          );
      t.deepEqual(await found(asker, `${other}.default.podnet`), addresses.toSorted());
      for (const address of addresses)
        t.regex(await lookUp(asker, address), new RegExp(`name = ${other}\\.podnet`), address);
      t.is((await execIn(rig.client, asker, "ping", "-c", "1", "-W", "2", other)).code, 0);
    }
    t.regex(await lookUp("web", "missing.podnet"), /NXDOMAIN/);
    t.regex(await lookUp("web", "10.30.0.77"), /NXDOMAIN/);
    t.notRegex(heard, /podnet|in-addr|ip6\.arpa/, "nothing of it is sent to others");
  },
);

test.serial(
  "other names come from the upstream, whom the host asks, also when the first is silent",
  async (t) => {
    t.deepEqual(await found("web", "outside.example"), ["203.0.113.99"]);
    const asker = `${labAddresses.hostUplink} asks outside.example`;
    t.true(heard.includes(asker), heard);
    // Longer than a datagram: busybox' own resolver does not ask on by TCP, others do.
    const asked = String.raw`\0\035\0\1\1\0\0\1\0\0\0\0\0\0\003big\007example\0\0\020\0\1`;
    const script = `printf '${asked}' | nc -w 3 10.30.0.1 53 | wc -c`;
    const { output } = await execIn(rig.client, "web", "sh", "-c", script);
    t.true(Number(output) > 4000, output);
  },
);

test.serial("an isolated pod asks its gateway too, and finds its own network's pods", async (t) => {
  t.deepEqual(await found("cell", "cell2"), await addressesOf("cell2"));
  t.deepEqual(await found("cell", "outside.example"), ["203.0.113.99"]);
  for (const name of ["web.podnet", "web.default.podnet"])
    t.regex(await lookUp("cell", name), /NXDOMAIN/, "not those of another network");
  const [address = ""] = await addressesOf("web");
  t.regex(await lookUp("cell", address), /NXDOMAIN/);
});

test.serial("a network without a resolver has its own servers, as ever", async (t) => {
  const { output } = await execIn(rig.client, "bare", "cat", "/etc/resolv.conf");
  t.is(output, `nameserver ${labAddresses.internet}\nsearch plain.example\n`);
  t.deepEqual(await found("bare", "outside.example"), ["203.0.113.99"]);
  t.deepEqual(await found("bare", "web", "10.32.0.1"), [], "nothing answers there");
});

/** Waits until a guest says so; podnetd notifies it in its turn, and does not wait. */
async function asks(pod: string, wanted: string): Promise<string> {
  let output = "";
  for (let nth = 0; nth < 100 && output !== wanted; nth++) {
    if (nth > 0) await delay(100);
    ({ output } = await execIn(rig.client, pod, "cat", "/etc/resolv.conf"));
  }
  return output;
}

test.serial("a running guest asks whom its network says, resolver or none", async (t) => {
  const own = "nameserver 10.31.0.1\nsearch podnet\n";
  const other = { ...alone, dns: [labAddresses.internet], dnsSearch: ["x.example"] };
  t.is(await asks("cell", own), own);
  const spec = { ...other, resolver: false };
  const { plan } = await rig.client.networks.update({ spec, planOnly: true });
  t.true(plan.includes(`guest of cell: name servers ${labAddresses.internet} search x.example`));
  t.is(await asks("cell", own), own, "that was a plan");
  await rig.client.networks.update({ spec });
  const others = `nameserver ${labAddresses.internet}\nsearch x.example\n`;
  for (const pod of ["cell", "cell2"]) t.is(await asks(pod, others), others);
  t.deepEqual(await found("cell", "outside.example"), ["203.0.113.99"]);
  await rig.client.networks.update({ spec: alone });
  t.is(await asks("cell", own), own);
  t.deepEqual(await found("cell", "cell2"), await addressesOf("cell2"));
});

test.serial(
  "a pod on several networks finds the names of each, from when it joins to when it leaves",
  async (t) => {
    const [address = ""] = await addressesOf("cell");
    const none = async (
      asker: string,
      name: string,
      ...servers: readonly string[]
    ): Promise<void> => {
      t.regex(await lookUp(asker, name, ...servers), /NXDOMAIN/, `${asker} asks for ${name}`);
    };
    const before = await addressesOf("db");
    await none("db", "cell.podnet");
    await rig.client.pods.addInterface({ idOrName: "db", interface: { network: "alone" } });
    const there = (await addressesOf("db")).filter((each) => !before.includes(each));
    t.is(there.length, 1);
    const servers = [...gateways, "10.31.0.1"].map((ip) => `nameserver ${ip}\n`).join("");
    t.is(await asks("db", `${servers}search podnet\n`), `${servers}search podnet\n`);
    for (const gateway of [...gateways, "10.31.0.1"]) {
      t.deepEqual(await found("db", "cell.podnet", gateway), [address], gateway);
      t.deepEqual(await found("db", "web.podnet", gateway), (await addressesOf("web")).toSorted());
      t.regex(await lookUp("db", address, gateway), /name = cell\.podnet/);
    }
    t.deepEqual(await found("db", "cell.alone.podnet"), [address]);
    t.deepEqual(await found("cell", "db"), there, "who is on one of them sees that one");
    t.deepEqual(await found("web", "db"), before.toSorted());
    await none("web", "cell.podnet");
    await none("web", address);
    await none("cell", "web.podnet");
    await none("db", "bare.podnet");
    await rig.client.pods.removeInterface({ idOrName: "db", guestName: "eth1" });
    const alone = [...gateways].map((ip) => `nameserver ${ip}\n`).join("");
    t.is(await asks("db", `${alone}search podnet\n`), `${alone}search podnet\n`);
    await none("db", "cell.podnet");
    await none("db", address);
  },
);

test.serial("only the pods of the network are answered", async (t) => {
  const { host, lan, internet } = rig.lab;
  const web = await addressesOf("web");
  // From outside, by routes that lead to the gateway, and at the host's own addresses.
  await internet.run("ip", "route", "add", "10.30.0.0/24", "via", labAddresses.hostUplink);
  for (const [machine, name] of [
    [lan, "the LAN"],
    [internet, "the internet"],
    [host, "the host itself"],
  ] as const)
    for (const server of ["10.30.0.1", labAddresses.hostOnLan])
      for (const way of ["udp", "tcp"] as const)
        t.regex(
          await ask(machine, way, server),
          /^(?:null|"refused")$/,
          `${name} ${way} ${server}`,
        );
  await internet.run("ip", "route", "del", "10.30.0.0/24");
  t.true(await lan.reaches("10.30.0.1"), "it is there, and reached");
  // From another network: by its own gateway it is answered, at ours it is not.
  t.deepEqual(await found("cell", "cell2.podnet", "10.31.0.1"), await addressesOf("cell2"));
  t.is((await execIn(rig.client, "cell", "ping", "-c", "1", "-W", "2", "10.30.0.1")).code, 0);
  t.deepEqual(await found("cell", "cell2.podnet", "10.30.0.1"), []);
  t.deepEqual(await found("cell", "web.podnet", "10.30.0.1"), []);
  // On the bridge, with an address that is no pod's; with that of a pod it would be answered.
  const link = (...words: readonly string[]) => host.run("ip", "link", ...words);
  await link("add", "ext0", "type", "veth", "peer", "name", "ext1", "netns", lan.name);
  await link("set", "ext0", "master", "hyper0", "up");
  await lan.run("ip", "address", "add", "10.30.0.200/24", "dev", "ext1");
  await lan.run("ip", "link", "set", "ext1", "up");
  for (let nth = 0; nth < 50 && !(await lan.reaches("10.30.0.1")); nth++) await delay(100);
  const refused = await queriesRefused();
  for (const way of ["udp", "tcp"] as const)
    t.regex(await ask(lan, way, "10.30.0.1"), /^(?:null|"refused")$/, way);
  t.is(await queriesRefused(), refused + 2, "they came");
  await link("del", "ext0");
  t.deepEqual(await found("web", "web"), web.toSorted());
});

async function metric(name: string): Promise<number> {
  const { daemon } = rig;
  const text = await rig.lab.host.run(
    "curl",
    "-s",
    "--unix-socket",
    daemon.socket,
    "http://podnet/metrics",
  );
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
}
const queriesRefused = (): Promise<number> => metric("podnet_dns_refused_total");

test.serial("names go with their pods, and come back with them", async (t) => {
  const before = await addressesOf("db");
  await rig.client.pods.stop({ idOrName: "db" });
  t.regex(await lookUp("web", "db.podnet"), /NXDOMAIN/);
  t.regex(await lookUp("web", before[0] ?? ""), /NXDOMAIN/);
  await rig.client.pods.start({ idOrName: "db" });
  t.deepEqual(await found("web", "db"), before.toSorted());
});

test.serial(
  "a podnetd that is killed answers again when it is back, and a bridge that is made anew",
  async (t) => {
    await rig.restart("kill");
    t.deepEqual(await found("web", "db"), (await addressesOf("db")).toSorted());
    await rig.lab.host.run("ip", "link", "del", "hyper0");
    let again: string[] = [];
    for (let nth = 0; nth < 100 && again.length === 0; nth++) {
      await delay(100);
      again = await found("web", "db.podnet").catch(() => []);
    }
    t.deepEqual(again, (await addressesOf("db")).toSorted());
    const { checks } = await rig.client.node.health({});
    t.deepEqual(
      checks.flatMap(({ name, message }) =>
        name.startsWith("names") ? [`${name}: ${message}`] : [],
      ),
      [
        "names alone: pods ask 10.31.0.1, and find POD.podnet",
        "names default: pods ask 10.30.0.1 and fd00:30::1, and find POD.podnet",
      ],
    );
  },
);

test.serial("nothing is left of it", async (t) => {
  for (const pod of ["web", "db", "cell", "cell2", "bare"])
    await rig.client.pods.delete({ idOrName: pod });
  for (const name of ["alone", "plain"]) await rig.client.networks.delete({ name });
  t.deepEqual(await rig.changes(atFirst), []);
});
