import { once } from "node:events";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import type { Machine } from "../lab/lab.ts";
import { until } from "../lab/until.ts";
import { eventually } from "../vm/standin-rig.ts";
import { type CniRig, openCniRig } from "./cni-rig.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await openCniRig('firewall = "nftables"\nquarantine_s = 0\ndrift_s = 1\n');
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async (t) => {
  await cni.gone(t);
});

const gateway = "192.168.123.1";
const addressOf = ({ ips: [{ address }] }: { ips: [{ address: string }] }): string =>
  address.slice(0, address.indexOf("/"));

/** What `podnet cni list` says of a container. */
async function listed({ name }: Machine): Promise<Record<string, unknown>> {
  const { items } = JSON.parse(await cni.rig.daemon.podnet("cni", "list", "-o", "json"));
  return items.find(({ containerId }: { containerId: string }) => containerId === name);
}

const isListed = async ({ name }: Machine): Promise<boolean> =>
  (await cni.rig.daemon.podnet("cni", "list")).includes(name);

/** No other test writes rows meanwhile. */
function inState(body: (db: DatabaseSync) => unknown): void {
  const db = new DatabaseSync(join(cni.rig.directory, "state", "state.db"));
  using _db = { [Symbol.dispose]: () => db.close() };
  body(db);
}

/** The cursor after all that has happened so far. */
async function upToNow(): Promise<bigint> {
  return (await cni.rig.client.pods.list({})).cursor;
}

for (const [what, harm, says] of [
  ["its address", ["addr", "flush", "dev", "eth0"], /address of eth0 is absent.*; healed/],
  ["its end down", ["link", "set", "eth0", "down"], /link eth0 state is down.*; healed/],
  ["its pair", ["link", "del", "eth0"], /link pc\w+ is absent.*; healed/],
] as const)
  test.serial(
    `what others take inside a container is put back, and reported: ${what}`,
    async (t) => {
      const container = await cni.container();
      await cni.done({ container });
      // Until then what goes inside may be a later plugin's doing; a link that is down or gone is
      // not.
      if (what === "its address")
        await until("its later plugins are done", () => !cni.mayChange(container));
      const after = await upToNow();
      await container.run("ip", ...harm);
      const { text } = await eventually(
        cni.rig.client,
        (event) => /container port/.test(event.text),
        after,
      );
      t.regex(text, says);
      await container.ping(gateway);
      await cni.done({ command: "DEL", container });
    },
  );

test.serial("of a container whose namespace is gone a note is all that comes", async (t) => {
  const container = await cni.container();
  await cni.done({ container });
  const after = await upToNow();
  await cni.lose(container);
  const { text } = await eventually(
    cni.rig.client,
    (event) => event.text.includes(container.name) || /container port/.test(event.text),
    after,
  );
  t.regex(text, /Network namespace .* is not there/);
  t.regex(String((await listed(container))["trouble"]), /namespace/);
  const { stdout } = await cni.rig.daemon.tryPodnet("info");
  t.regex(stdout, /containers.*namespace/s);
  await cni.done({ command: "DEL", container });
});

test.serial(
  "another namespace by a container's path is left alone, by drift and by its network's changes",
  async (t) => {
    const { client, daemon } = cni.rig;
    await client.networks.create({ spec: { name: "blue", subnets: [{ cidr: "10.77.0.0/24" }] } });
    const container = await cni.container();
    await cni.done({ container, config: { network: "blue" } });
    const after = await upToNow();
    await cni.replace(container);
    // (It may be looked for before the other one is there.)
    const said = new RegExp(`${container.name}.* is another one by now`);
    await eventually(client, ({ text }) => said.test(text), after);
    await daemon.podnet("network", "update", "blue", "--isolated");
    t.notRegex(await container.run("ip", "-o", "link", "show"), /eth0/);
    t.regex(String((await listed(container))["trouble"]), /is another one by now/);
    await cni.done({ command: "DEL", container, config: { network: "blue" } });
    await cni.converged();
    await client.networks.delete({ name: "blue" });
  },
);

test.serial(
  "a start takes a container off whose namespace is another one by now, and makes nothing in that",
  async (t) => {
    const [one, old] = [await cni.container(), await cni.container()];
    for (const container of [one, old]) await cni.done({ container });
    const { daemon } = cni.rig;
    await daemon.kill();
    // As a podnetd before wrote it down.
    const forget = "UPDATE attachments SET plan = json_remove(plan, ?) WHERE container_id = ?";
    inState((db) => db.prepare(forget).run("$.namespace", old.name));
    await cni.replace(one);
    await cni.rig.restart("kill");
    t.false(await isListed(one));
    t.notRegex(await one.run("ip", "-o", "link", "show"), /eth0/);
    await cni.done({ command: "DEL", container: one });
    t.is((await listed(old))["trouble"], "");
    await old.ping(gateway);
    await daemon.kill();
    await cni.replace(old);
    await cni.rig.restart("kill");
    t.false(await isListed(old));
    t.notRegex(await old.run("ip", "-o", "link", "show"), /eth0/);
    await cni.done({ command: "DEL", container: old });
  },
);

test.serial(
  "a container whose namespace is another one by now can be added to its network again",
  async (t) => {
    const container = await cni.container();
    await cni.done({ container });
    t.like(await cni.ask({ container }), { exit: 1, json: { code: 105 } });
    await cni.replace(container);
    await cni.done({ container });
    await container.ping(gateway);
    await cni.done({ command: "DEL", container });
  },
);

test.serial(
  "containers follow their network: isolated or not, and its MTU unless they asked for one",
  async (t) => {
    const { networks } = cni.rig.client;
    await networks.create({ spec: { name: "blue", subnets: [{ cidr: "10.77.0.0/24" }] } });
    const [one, other] = [await cni.container(), await cni.container()];
    const network = "blue";
    await cni.done({ container: one, config: { network } });
    const second = await cni.done({ container: other, config: { network, mtu: 1400 } });
    const link = String((await listed(one))["hostLink"]);
    await one.ping(addressOf(second));
    const { daemon, lab } = cni.rig;
    const plan = await daemon.podnet("network", "update", network, "--isolated", "--plan");
    t.true(plan.includes(link), plan);
    await daemon.podnet("network", "update", network, "--isolated", "--mtu", "1450");
    t.false(await one.reaches(addressOf(second)));
    await one.ping("10.77.0.1");
    t.regex(await lab.host.run("bridge", "-d", "link", "show", "dev", link), /isolated on/);
    for (const text of [
      await one.run("ip", "link", "show", "eth0"),
      await lab.host.run("ip", "link", "show", link),
    ])
      t.regex(text, /mtu 1450/);
    t.regex(await other.run("ip", "link", "show", "eth0"), /mtu 1400/);
    const refused = await daemon.tryPodnet("network", "update", network, "--mtu", "1300");
    t.regex(refused.stderr, new RegExp(`${other.name}" has an MTU of 1400`));
    for (const container of [one, other]) await cni.done({ command: "DEL", container });
    await cni.converged();
    await networks.delete({ name: network });
  },
);

const portMappings = [{ hostPort: 8083, containerPort: 80, protocol: "tcp" }];
const config = { runtimeConfig: { portMappings } };

/** Listens at a port until it is killed. */
async function listen(where: Machine, port: number) {
  const program = `
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", ${port})); s.listen(); print("ready", flush=True)
while True:
    c, _ = s.accept(); c.sendall(b"here"); c.close()`;
  const served = where.spawn(["python3", "-c", program], { stdio: ["ignore", "pipe", "inherit"] });
  // It ends with an error, and without a word, where another program has the port.
  const [first] = await Promise.race([
    once(served.stdout as NonNullable<typeof served.stdout>, "data"),
    once(served, "exit"),
  ]);
  if (!Buffer.isBuffer(first)) throw new Error(`Port ${port} could not be listened at`);
  return {
    async [Symbol.asyncDispose]() {
      served.kill("SIGKILL");
      await once(served, "exit");
    },
  };
}

test.serial(
  "a host port that another program holds at a start is reported, and held when it is free",
  async (t) => {
    const container = await cni.container();
    await cni.done({ container, config });
    t.regex(String((await listed(container))["ports"]), /tcp 0\.0\.0\.0:8083 to [\d.]+:80/);
    await cni.rig.daemon.kill();
    const after: bigint = await (async () => {
      await using _theirs = await listen(cni.rig.lab.host, 8083);
      await cni.rig.restart("kill");
      t.regex(String((await listed(container))["trouble"]), /8083/);
      t.regex(await cni.rig.daemon.podnet("cni", "list"), /8083/);
      return upToNow();
    })();
    await eventually(cni.rig.client, ({ text }) => /published ports are held/.test(text), after);
    t.is((await listed(container))["trouble"], "");
    const { host } = cni.rig.lab;
    const bind = (port: number) =>
      host.run("python3", "-c", `import socket; socket.socket().bind(("0.0.0.0", ${port}))`);
    await t.throwsAsync(bind(8083), { message: /Address already in use/ });
    await bind(8084);
    await cni.done({ command: "DEL", container });
  },
);

test.serial(
  "with another firewall than before, what a container publishes is let in before anything else is judged",
  async (t) => {
    const container = await cni.container();
    const added = await cni.done({ container, config });
    const { host, lan } = cni.rig.lab;
    await using _served = await listen(container, 80);
    const asks = (at = "192.0.2.1", port = 8083) =>
      lan.run("python3", "-c", asker, at, String(port)).catch(() => "nothing");
    t.is(await asks(), "here");
    // What is not published is not reached, though the way there is known: as a pod's.
    const inside = addressOf(added);
    await lan.run("ip", "route", "add", `${inside}/32`, "via", "192.0.2.1");
    t.is(await asks(inside, 80), "nothing");
    // Killed when it comes to its networks, whose rules judge what is let in.
    const networks = { PODNET_FAILPOINTS: "netlink:list links:before#1=kill" };
    const otherwise = { PODNET_FIREWALL: "iptables" };
    await t.throwsAsync(cni.rig.restart("stop", { ...otherwise, ...networks }));
    t.regex(await host.run("nft", "list", "table", "inet", "podnet_published"), /\b8083\b.*\b80\b/);
    for (const firewall of [otherwise, {}]) {
      await cni.rig.restart("kill", firewall);
      t.is(await asks(), "here");
    }
    // Its own chains, empty, iptables leaves.
    for (const table of ["filter", "nat"]) await host.run("nft", "delete", "table", "ip", table);
    await cni.done({ command: "DEL", container });
  },
);

const asker = `
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
print(s.recv(9).decode(), end="")`;

test.serial("requests are counted by what came of them, with how long they took", async (t) => {
  const container = await cni.container();
  await cni.done({ container });
  await cni.ask({ container });
  await cni.done({ command: "DEL", container });
  const { lab, rig } = { lab: cni.rig.lab, rig: cni.rig };
  const text = await lab.host.run(
    "curl",
    "-s",
    "--unix-socket",
    rig.daemon.socket,
    "http://x/metrics",
  );
  t.regex(text, /podnet_cni_duration_seconds_count\{command="ADD",code="0"\} [1-9]/);
  t.regex(text, /podnet_cni_duration_seconds_count\{command="ADD",code="105"\} [1-9]/);
  t.regex(text, /podnet_cni_duration_seconds_count\{command="DEL",code="0"\} [1-9]/);
});
