import { spawn } from "node:child_process";
import { once } from "node:events";
import test, { type ExecutionContext } from "ava";
import { run } from "../../linux/processes/command.ts";
import { writeSysctl } from "../../linux/sysctl.ts";
import type { NetworkFragment } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import type { Variant } from "../../network/model/rules.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip, networkFragment, podFragment, type PortOptions } from "../lab/network.ts";

const { signal } = new AbortController();
let count = 0;

/**
 * This process's namespace is the host. `internet` has no way back to pods, so what it answers was
 * masqueraded; `lan` routes everything by the host, as a neighbour who tries to get at pods
 * directly would.
 */
class Site implements AsyncDisposable {
  readonly host: HostNetwork;
  readonly #prefix = `s${count++}`;
  readonly #made: string[] = [];

  constructor(variant: Variant) {
    this.host = openHostNetwork({ iptables: variant, chain: "HYPER" });
  }

  static async open(
    variant: Variant,
    fragment: NetworkFragment = networkFragment(),
  ): Promise<Site> {
    await ownNetns();
    const site = new Site(variant);
    await site.#machine("internet", "wan0", "198.51.100.1/24");
    await ip("address add 198.51.100.2/24 dev wan0");
    await ip("route add default via 198.51.100.1");
    await ip(`-n ${site.name("internet")} address add 203.0.113.10/32 dev lo`);
    await site.#machine("lan", "lan0", "192.0.2.20/24");
    await ip("address add 192.0.2.1/24 dev lan0");
    await ip(`-n ${site.name("lan")} route add default via 192.0.2.1`);
    await site.host.apply(fragment, signal);
    return site;
  }

  name = (machine: string): string => `${this.#prefix}-${machine}`;

  /** A namespace as a pod: its link on the host is the port. */
  async pod(n: number, options: PortOptions = {}): Promise<void> {
    const address = options.address ?? `192.168.123.${n}/24`;
    await this.#machine(`pod${n}`, `tap${n}`, address, false);
    const fragment = podFragment(n, options);
    // Its guest has the MAC that podnet gave it.
    const mac = fragment.ports[0]?.guestMac;
    await ip(`-n ${this.name(`pod${n}`)} link set dev eth0 address ${mac}`);
    await this.host.apply(fragment, signal);
    const gateway = address.replace(/\.\d+\/.*/, ".1");
    await ip(`-n ${this.name(`pod${n}`)} route add default via ${gateway}`);
  }

  async #machine(machine: string, link: string, address: string, up = true): Promise<void> {
    const name = this.name(machine);
    await ip(`netns add ${name}`);
    this.#made.push(name);
    await ip(`link add name ${link} type veth peer name eth0 netns ${name}`);
    if (up) await ip(`link set dev ${link} up`);
    await ip(`-n ${name} address add ${address} dev eth0`);
    await ip(`-n ${name} link set dev eth0 up`);
    await ip(`-n ${name} link set dev lo up`);
  }

  /** Whether a ping from a machine (undefined is the host) is answered within 0.4 s. */
  async reaches(from: string | undefined, address: string): Promise<boolean> {
    try {
      await this.#run(from, "ping", "-n", "-c", "1", "-W", "0.4", address);
      return true;
    } catch {
      return false;
    }
  }

  /**
   * Opens a TCP connection from one machine to another and gives the address the server saw it come
   * from.
   */
  async tcp(from: string | undefined, to: string, address: string, port = 7000): Promise<string> {
    const serve = `require("net").createServer((s) => s.end(s.remoteAddress)).listen(7000, "0.0.0.0", () => console.log("up"))`;
    const server = spawn("ip", ["netns", "exec", this.name(to), process.execPath, "-e", serve]);
    const ended = once(server, "exit");
    try {
      await once(server.stdout, "data");
      const ask = `const s = require("net").connect(${port}, "${address}"); s.pipe(process.stdout); s.setTimeout(1000, () => process.exit(1))`;
      return await this.#run(from, process.execPath, "-e", ask);
    } finally {
      server.kill("SIGKILL");
      // The next one listens on this port again.
      await ended;
    }
  }

  async #run(machine: string | undefined, ...argv: [string, ...string[]]): Promise<string> {
    const enter = ["ip", "netns", "exec"] as const;
    return (await run(machine === undefined ? argv : [...enter, this.name(machine), ...argv]))
      .stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.host[Symbol.asyncDispose]();
    for (const name of this.#made) await ip(`netns delete ${name}`);
  }
}

const bridgeNf = (value: "0" | "1"): void =>
  writeSysctl("net.bridge.bridge-nf-call-iptables", value);

async function table(
  t: ExecutionContext,
  site: Site,
  expected: readonly (readonly [
    from: string | undefined,
    address: string,
    reaches: boolean,
    why: string,
  ])[],
): Promise<void> {
  for (const [from, address, reaches, why] of expected)
    t.is(await site.reaches(from, address), reaches, `${from ?? "host"} → ${address}: ${why}`);
}

for (const variant of ["nft", "legacy"] as const)
  for (const nf of ["0", "1"] as const)
    test.serial(
      `Traffic of a network with iptables-${variant} and bridge-nf-call-iptables=${nf}`,
      async (t) => {
        await using site = await Site.open(variant);
        // A host whose administrator, or docker, drops unrequested packets.
        await run([`iptables-${variant}`, "-P", "FORWARD", "DROP"]);
        bridgeNf(nf);
        await site.pod(2);
        await site.pod(3);
        await table(t, site, [
          ["pod2", "192.168.123.1", true, "the gateway answers"],
          [undefined, "192.168.123.2", true, "the host reaches its pods"],
          ["pod2", "192.168.123.3", true, "pods of one network talk"],
          ["pod3", "192.168.123.2", true, "and the other way"],
          ["pod2", "203.0.113.10", true, "masqueraded: the internet has no way back otherwise"],
          ["pod2", "192.0.2.20", true, "the LAN is outside too"],
          ["lan", "192.0.2.1", true, "control: the LAN is connected"],
          ["lan", "192.168.123.1", true, "control: it has a way to the pods' subnet"],
          ["lan", "192.168.123.2", false, "nothing gets at a pod from outside unasked"],
        ]);
        t.is(await site.tcp("pod2", "internet", "203.0.113.10"), "198.51.100.2");
        t.is(await site.tcp("pod2", "pod3", "192.168.123.3"), "192.168.123.2");
        await run([
          `iptables-${variant}`,
          "-I",
          "FORWARD",
          "-i",
          "hyper0",
          "-o",
          "hyper0",
          "-j",
          "DROP",
        ]);
        const between = await site.reaches("pod2", "192.168.123.3");
        t.is(between, nf === "0", "control: only with 1 do frames between pods pass FORWARD");
      },
    );

test.serial("What keeps the outside out is our DROP alone, and it is repaired", async (t) => {
  await using site = await Site.open("nft");
  await site.pod(2);
  t.false(await site.reaches("lan", "192.168.123.2"));
  await run(["iptables-nft", "-F", "HYPER"]);
  t.true(await site.reaches("lan", "192.168.123.2"), "control: FORWARD lets it through");
  await run(["iptables-nft", "-F"]);
  await run(["iptables-nft", "-t", "nat", "-F"]);
  t.false(await site.reaches("pod2", "203.0.113.10"), "control: without masquerading");
  t.is((await site.host.diff(networkFragment(), signal)).length, 2);
  await site.host.apply(networkFragment(), signal);
  t.false(await site.reaches("lan", "192.168.123.2"));
  t.true(await site.reaches("pod2", "203.0.113.10"));
});

test.serial(
  "Isolated ports exchange nothing; of an isolated network not by way of the gateway either",
  async (t) => {
    await using site = await Site.open("nft");
    bridgeNf("0");
    await site.pod(2, { isolated: true });
    await site.pod(3, { isolated: true });
    await site.pod(4);
    await table(t, site, [
      ["pod2", "192.168.123.3", false, "both isolated"],
      ["pod2", "192.168.123.4", true, "control: the other is not"],
      ["pod2", "192.168.123.1", true, "the gateway is no port"],
      ["pod2", "203.0.113.10", true, "the internet"],
    ]);
    // A guest that sends everything to its gateway has the host route it back.
    for (const [pod, other] of [
      [2, 3],
      [3, 2],
    ] as const)
      await ip(`-n ${site.name(`pod${pod}`)} route add 192.168.123.${other}/32 via 192.168.123.1`);
    t.true(await site.reaches("pod2", "192.168.123.3"), "control: the way by the gateway");
    await site.host.apply(networkFragment({ isolated: true }), signal);
    t.false(await site.reaches("pod2", "192.168.123.3"));
    t.true(await site.reaches("pod2", "203.0.113.10"));
    // Drift of a port's own setting.
    await ip("link set dev tap2 type bridge_slave isolated off");
    t.is((await site.host.apply(podFragment(2, { isolated: true }), signal)).length, 1);
  },
);

test.serial(
  "Two networks both reach the internet and not each other, whichever came first",
  async (t) => {
    await using site = await Site.open("nft");
    const blue = networkFragment({
      key: "blue",
      bridge: "blue0" as NetworkFragment["bridge"],
      gateways: ["10.88.0.1/16" as NetworkFragment["gateways"][number]],
      masquerade: ["10.88.0.0/16" as NetworkFragment["masquerade"][number]],
    });
    await site.host.apply(blue, signal);
    await site.pod(2);
    await site.pod(3, { bridge: "blue0", address: "10.88.0.3/16" });
    await table(t, site, [
      ["pod2", "203.0.113.10", true, "the internet"],
      ["pod3", "203.0.113.10", true, "the internet"],
      ["pod2", "10.88.0.1", true, "control: the other gateway is the host"],
      ["pod2", "10.88.0.3", false, "another network is outside"],
      ["pod3", "192.168.123.2", false, "another network is outside"],
    ]);
  },
);

test.serial("A pod with a new MAC on a used address is reached at once", async (t) => {
  await using site = await Site.open("nft");
  await site.pod(2);
  t.true(await site.reaches(undefined, "192.168.123.2"));
  t.regex(await ip("neigh show 192.168.123.2"), /lladdr/);
  // What would happen with a stale entry: believed for good, so that the control is certain.
  await ip("neigh replace 192.168.123.7 lladdr 52:54:00:de:ad:00 dev hyper0 nud permanent");
  const address = "192.168.123.7/24";
  t.false(await site.reaches(undefined, "192.168.123.7"));
  await site.pod(7, { address });
  t.true(await site.reaches(undefined, "192.168.123.7"));
  await site.host.remove(podFragment(2), signal);
  t.is(await ip("neigh show 192.168.123.2"), "");
});

test.serial(
  "Running pods survive the loss of the bridge: the gateway comes back with the same MAC",
  async (t) => {
    await using site = await Site.open("nft");
    await site.pod(2);
    t.true(await site.reaches("pod2", "203.0.113.10"));
    await ip("link delete dev hyper0");
    t.false(await site.reaches("pod2", "203.0.113.10"));
    await site.host.apply(networkFragment(), signal);
    await site.host.apply(podFragment(2), signal);
    t.true(await site.reaches("pod2", "203.0.113.10"));
    t.deepEqual(await site.host.diff(networkFragment(), signal), []);
    t.deepEqual(await site.host.diff(podFragment(2), signal), []);
  },
);

test.serial("Detached, a pod neither sends nor receives", async (t) => {
  await using site = await Site.open("nft");
  await site.pod(2);
  t.true(await site.reaches("pod2", "192.168.123.1"));
  await site.host.remove({ kind: "ports", pod: podFragment(2).key }, signal);
  t.false(await site.reaches("pod2", "192.168.123.1"));
  t.false(await site.reaches(undefined, "192.168.123.2"));
  t.deepEqual(await site.host.remove({ kind: "ports", pod: podFragment(2).key }, signal), []);
});

for (const variant of ["nft", "legacy"] as const)
  test.serial(
    `A port published through HYPER is reached where the ancestors' is, with iptables-${variant}`,
    async (t) => {
      await using site = await Site.open(variant);
      await site.pod(2);
      await site.pod(3);
      const pod = podFragment(2).key;
      const mark = ["-m", "comment", "--comment", `podnet:pod:${pod}`];
      const tcp = (port: number): string[] => ["-p", "tcp", "-m", "tcp", "--dport", `${port}`];
      const to = "192.168.123.2";
      const dnat = [...tcp(8080), ...mark, "-j", "DNAT", "--to-destination", `${to}:7000`];
      await run([`iptables-${variant}`, "-t", "nat", "-I", "HYPER", ...dnat]);
      await run([
        `iptables-${variant}`,
        "-I",
        "HYPER",
        "-d",
        to,
        ...tcp(7000),
        ...mark,
        "-j",
        "ACCEPT",
      ]);
      t.deepEqual(await site.host.diff(networkFragment(), signal), []);
      t.is(await site.tcp("lan", "pod2", "192.0.2.1", 8080), "192.0.2.20");
      t.is(await site.tcp("pod3", "pod2", "192.0.2.1", 8080), "192.168.123.3");
      t.is(await site.tcp(undefined, "pod2", "192.0.2.1", 8080), "192.0.2.1");
      t.false(await site.reaches("lan", to), "what is not published stays closed");
      const known = { pods: new Set([pod, podFragment(3).key]), networks: new Set(["default"]) };
      // At a start of podnetd: published ports stand elsewhere by now.
      const changes = await site.host.remove({ kind: "orphans", known }, signal);
      t.deepEqual(
        changes.map(({ kind }) => kind),
        ["iptables", "iptables"],
      );
      t.deepEqual(await site.host.remove({ kind: "orphans", known }, signal), []);
      t.deepEqual(await site.host.diff(networkFragment(), signal), []);
    },
  );
