import { mkdtempSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";

let lab: Lab;
let daemon: Podnetd;
let client: Podnet;
const opened = new AsyncDisposableStack();

test.before(async () => {
  lab = opened.use(await openLab("names-"));
  const directory = mkdtempSync("/tmp/podnet-names-");
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  daemon = opened.use(
    await startPodnetd({
      machine: lab.host,
      directory,
      config: "drift_s = 1\n[dns]\nresolver = false\n",
    }),
  );
  client = connectPodnet({ socket: daemon.socket });
  opened.defer(() => client.close());
});
test.after.always(() => opened.disposeAsync());

/** The sockets that answer names, as `udp 10.0.0.1%bridge`. */
async function sockets(host = lab.host): Promise<string[]> {
  const said = await host.run("ss", "-Hlntu", "sport = :53");
  return [...said.matchAll(/^(udp|tcp)\s+\S+\s+\d+\s+\d+\s+(\S+):53\s/gm)]
    .map(([, way = "", at = ""]) => `${way} ${at}`)
    .toSorted();
}

const both = (...addresses: readonly string[]): string[] =>
  ["tcp", "udp"].flatMap((way) => addresses.map((each) => `${way} ${each}`)).toSorted();

/** What health says of a network's names. */
async function reported(network: string): Promise<string> {
  const { checks } = await client.node.health({});
  return checks.find(({ name }) => name === `names ${network}`)?.message ?? "nothing";
}

/** The servers and search domain that a pod of a network would get. */
async function servers(network: string): Promise<string> {
  const words = ["create", "--network", network, "--plan", "-o", "json"];
  const { stdout } = await daemon.tryPodnet(...words);
  const [, asked = "", searched = ""] =
    /"servers":\[([^\]]*)\],"search":\["?([^",\]]*)/.exec(stdout.replaceAll("\\", "")) ?? [];
  return `${asked} ${searched}`;
}

test.serial("a network's resolver comes, changes and goes with it", async (t) => {
  t.deepEqual(await sockets(), []);
  const spec = {
    name: "blue",
    subnets: [{ cidr: "10.20.0.0/24" }, { cidr: "fd00:20::/64" }],
    resolver: true,
  };
  const usual = {
    ...spec,
    name: "usual",
    subnets: [{ cidr: "10.23.0.0/24" }],
    resolver: undefined,
  };
  const byDefault = await client.networks.create({ spec: usual, planOnly: true });
  t.notRegex(byDefault.plan.join("\n"), /names/, "as it is configured");
  const { plan } = await client.networks.create({ spec, planOnly: true });
  const line = "names at 10.20.0.1 and fd00:20::1, port 53, for pods on pn-blue alone";
  t.true(plan.includes(line), plan.join("\n"));
  t.true((await client.networks.create({ spec })).network?.resolver);
  const blue = both("10.20.0.1%pn-blue", "[fd00:20::1]%pn-blue");
  t.deepEqual(await sockets(), blue);
  const without = await client.networks.update({
    spec: { ...spec, resolver: false },
    planOnly: true,
  });
  t.deepEqual(without.plan, ["names no more"]);
  await client.networks.update({ spec: { ...spec, resolver: false } });
  t.deepEqual(await sockets(), []);
  t.is(await reported("blue"), "nothing");
  const moved = { name: "blue", subnets: [{ cidr: "10.21.0.9/24" }], resolver: true };
  await client.networks.update({ spec: moved });
  t.deepEqual(await sockets(), both("10.21.0.9%pn-blue"));
  t.true(
    (await client.networks.delete({ name: "blue", planOnly: true })).plan.some((each) =>
      each.startsWith("names at"),
    ),
  );
  await client.networks.delete({ name: "blue" });
  t.deepEqual(await sockets(), []);
});

test.serial(
  "port 53 that another program holds is reported, and held again when it is free",
  async (t) => {
    const busy = lab.host.spawn([
      process.execPath,
      "-e",
      'require("node:net").createServer().listen(53, "0.0.0.0")',
    ]);
    for (let nth = 0; nth < 100 && !(await sockets()).includes("tcp 0.0.0.0"); nth++)
      await delay(50);
    t.deepEqual(await sockets(), ["tcp 0.0.0.0"]);
    const spec = {
      name: "late",
      subnets: [{ cidr: "10.22.0.0/24" }],
      dns: ["192.0.2.53"],
      resolver: true,
    };
    await client.networks.create({ spec });
    t.regex(
      await reported("late"),
      /^Host port 53\/tcp at 10\.22\.0\.1 is taken by .*node.*\(pid \d+\)$/,
    );
    t.regex(await servers("late"), /^"192\.0\.2\.53" (?!podnet)/, "the network's own meanwhile");
    busy.kill("SIGKILL");
    for (let nth = 0; nth < 200 && !(await reported("late")).startsWith("pods ask"); nth++)
      await delay(50);
    t.is(await reported("late"), "pods ask 10.22.0.1, and find POD.podnet");
    t.is(await servers("late"), '"10.22.0.1" podnet');
    t.deepEqual(await sockets(), both("10.22.0.1%pn-late"));
    t.regex(daemon.log(), /resolver late: pods cannot ask it/);
    t.regex(daemon.log(), /resolver late is asked again/);
  },
);

test.serial("a bridge that is made anew has its resolver again", async (t) => {
  const before = await sockets();
  await lab.host.run("ip", "link", "del", "pn-late");
  const index = async (): Promise<string> =>
    (await lab.host.run("cat", "/sys/class/net/pn-late/ifindex").catch(() => "")).trim();
  for (let nth = 0; nth < 200 && (await index()) === ""; nth++) await delay(50);
  for (let nth = 0; nth < 200 && (await sockets()).join() !== before.join(); nth++) await delay(50);
  t.deepEqual(await sockets(), before);
});

test.serial(
  "sockets that cannot be had at a start are had later, and none is left of the first",
  async (t) => {
    const other = await openLab("names2-");
    t.teardown(() => other[Symbol.asyncDispose]());
    const directory = mkdtempSync("/tmp/podnet-names-");
    const points = [
      "bind a UDP socket to a link",
      "bind a TCP socket to a link",
      "answer names by TCP",
    ];
    await using again = await startPodnetd({
      machine: other.host,
      directory,
      config: "drift_s = 1\n",
      env: {
        PODNET_FAILPOINTS: points.map((each, i) => `socket:${each}:after#${i + 1}=error`).join(";"),
      },
    });
    const found = async (): Promise<string[]> => await sockets(other.host);
    const wanted = both("192.168.123.1%hyper0");
    for (let nth = 0; nth < 300 && (await found()).join() !== wanted.join(); nth++) await delay(50);
    t.deepEqual(await found(), wanted);
    t.regex(again.log(), /resolver default: pods cannot ask it/);
    rmSync(directory, { recursive: true, force: true });
  },
);
