import { existsSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { atLeast, cniVersions } from "../../cni/protocol/version.ts";
import { type CniRig, joinCniRig } from "./cni-rig.ts";
import { type PluginEnd, pluginProgram, runPlugin } from "./run-plugin.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await joinCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

/** The plugin itself, as a runtime runs it. */
function run(
  command: string,
  { name, path: netns }: { readonly name: string; readonly path: string },
  config: object,
): Promise<PluginEnd> {
  const env = [
    `CNI_COMMAND=${command}`,
    `CNI_CONTAINERID=${name}`,
    `CNI_NETNS=${netns}`,
    "CNI_IFNAME=eth0",
    `CNI_PATH=${path.dirname(pluginProgram)}`,
  ];
  return runPlugin(env, JSON.stringify(config));
}

/** What a result of the version holds, name by name; a list by its first member. */
const shapes = {
  old: {
    cniVersion: "",
    ip4: { ip: "", gateway: "", routes: [{ dst: "", gw: "" }] },
    dns: { nameservers: [""], search: [""] },
  },
  middle: {
    cniVersion: "",
    interfaces: [{ name: "", mac: "" }],
    ips: [{ version: "", interface: 0, address: "", gateway: "" }],
    routes: [{ dst: "", gw: "" }],
    dns: { nameservers: [""], search: [""] },
  },
};

/** Names of all members, in whatever order, as paths; `mtu` is said from 1.1.0 on. */
function namesIn(value: unknown, prefix = ""): string[] {
  if (Array.isArray(value)) return namesIn(value[0], `${prefix}[]`);
  if (typeof value !== "object" || value === null) return [prefix];
  return Object.entries(value).flatMap(([name, member]) => namesIn(member, `${prefix}.${name}`));
}

for (const version of cniVersions)
  test.serial(`every verb by the plugin, in CNI ${version}`, async (t) => {
    const container = await cni.container();
    const config = {
      cniVersion: version,
      name: "podnet",
      type: "podnet-cni",
      socket: cni.socket,
      pendingDirectory: path.join(cni.rig.directory, "cni-pending"),
    };
    const ask = (command: string, more: object = {}): Promise<PluginEnd> =>
      run(command, container, { ...config, ...more });

    const added = await ask("ADD");
    t.like(added, { exit: 0, stderr: "" }, added.stdout);
    t.is(added.json.cniVersion, version);
    const { old, middle } = shapes;
    const { version: _family, ...late } = middle.ips[0] as (typeof middle.ips)[number];
    const wanted = !atLeast(version, "0.3.0")
      ? old
      : atLeast(version, "1.0.0")
        ? { ...middle, ips: [late] }
        : middle;
    const found = namesIn(added.json).filter((name) => !name.endsWith(".mtu"));
    t.deepEqual(found.sort(), namesIn(wanted).sort());
    t.is(added.stdout.includes('"mtu"'), version === "1.1.0");
    if (atLeast(version, "0.3.0"))
      t.is(added.json.interfaces[added.json.ips[0].interface].name, "eth0");
    await container.ping("192.168.123.1");

    // A second ADD is refused and spoils nothing.
    t.is((await ask("ADD")).exit, 1);
    const check = await ask("CHECK", { prevResult: added.json });
    if (atLeast(version, "0.4.0")) t.like(check, { exit: 0, stdout: "" }, check.stdout);
    else t.is(check.json.code, 1);
    for (const command of ["STATUS", "GC"]) {
      const attachment = { containerID: container.name, ifname: "eth0" };
      const said = await ask(command, { "cni.dev/valid-attachments": [attachment] });
      if (version === "1.1.0") t.like(said, { exit: 0, stdout: "" }, said.stdout);
      else t.is(said.json.code, 1, command);
    }
    await container.ping("192.168.123.1");

    for (const more of [{ prevResult: added.json }, {}])
      t.like(await ask("DEL", more), { exit: 0, stdout: "", stderr: "" });
    t.like(await run("DEL", { ...container, path: "" }, config), { exit: 0, stdout: "" });
    t.false(await container.reaches("192.168.123.1"));
    t.false(existsSync(config.pendingDirectory));
    await cni.gone(t);
  });

test.serial("GC by the plugin takes what is not named, and spares what is", async (t) => {
  const container = await cni.container();
  const config = { cniVersion: "1.1.0", name: "podnet", type: "podnet-cni", socket: cni.socket };
  t.is((await run("ADD", container, config)).exit, 0);
  const key = "cni.dev/valid-attachments";
  const none = await run("GC", container, config);
  t.is(none.json.code, 7);
  await container.ping("192.168.123.1");
  t.is((await run("GC", container, { ...config, [key]: null })).exit, 0);
  t.false(await container.reaches("192.168.123.1"));
  await cni.gone(t);
});

// The last one: of IPv6's rules empty tables stay, as iptables leaves them.
/** What a network of both families gives, as each form of results says it. */
const ofBoth: Readonly<Record<string, (said: PluginEnd["json"]) => unknown>> = {
  "0.2.0": ({ ip4, ip6 }) => [ip4, ip6],
  "0.4.0": ({ ips, routes }) => [...ips, ...routes],
  "1.0.0": ({ ips, routes }) => [...ips, ...routes],
};
const v4 = { address: "10.88.0.2/24", gateway: "10.88.0.1" };
const v6 = { address: "fd00:88::2/64", gateway: "fd00:88::1" };
const routes = [
  { dst: "0.0.0.0/0", gw: v4.gateway },
  { dst: "::/0", gw: v6.gateway },
];
const saidOfBoth: Readonly<Record<string, unknown>> = {
  "0.2.0": [v4, v6].map(({ address, gateway }, i) => ({
    ip: address,
    gateway,
    routes: [routes[i]],
  })),
  "0.4.0": [
    { version: "4", interface: 2, ...v4 },
    { version: "6", interface: 2, ...v6 },
    ...routes,
  ],
  "1.0.0": [{ interface: 2, ...v4 }, { interface: 2, ...v6 }, ...routes],
};

test.serial("a network of both families is reported in each form of results", async (t) => {
  const subnets = [{ cidr: "10.88.0.0/24" }, { cidr: "fd00:88::/64" }];
  for (const [cniVersion, found] of Object.entries(ofBoth)) {
    await cni.rig.client.networks.create({ spec: { name: "both", subnets } });
    const container = await cni.container();
    const config = {
      cniVersion,
      name: "n",
      type: "podnet-cni",
      network: "both",
      socket: cni.socket,
    };
    const { exit, stdout, json } = await run("ADD", container, config);
    t.is(exit, 0, stdout);
    t.deepEqual(found(json), saidOfBoth[cniVersion], cniVersion);
    for (const { gateway } of [v4, v6]) await container.ping(gateway);
    t.is((await run("DEL", container, config)).exit, 0);
    await cni.converged();
    await cni.rig.client.networks.delete({ name: "both" });
  }
  t.deepEqual(await cni.links(), []);
});
