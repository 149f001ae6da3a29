import { once } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { labAddresses } from "../lab/lab.ts";
import type { Asked } from "../lab/steady-asker.ts";
import { openPortsRig, portsOf } from "./ports-rig.ts";

const { hostOnLan, hostUplink, lan } = labAddresses;
const asker = path.resolve(import.meta.dirname, "../lab/steady-asker.ts");

/**
 * Sends a number every 20 ms through a published port, and prints what comes back; reports when the
 * connection ends.
 */
const counter = `
  const socket = require("node:net").connect(8080, "${hostOnLan}");
  let n = 0;
  setInterval(() => socket.write(n++ + "\\n"), 20);
  socket.pipe(process.stdout);
  socket.on("error", ({ code }) => console.log("ended with " + code));
  socket.on("close", () => console.log("ended"));`;

test("podnetd changes from iptables to nftables and back: connections flow on, new ones are let in all the time, nothing stays", async (t) => {
  await using rig = await openPortsRig("");
  const { host, lan: outside, internet } = rig.lab;
  const ports = portsOf("*:8080:7", "*:5353:53/udp");
  await rig.client.pods.create({ spec: { name: "web", ports } });
  const web = await rig.pod("web");
  await web.echo(7);
  await web.serve("udp", 53, "udp53");
  await rig.machine(internet).serve("tcp", 7000, "far");
  const client = outside.spawn([process.execPath, "-e", counter], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => client.kill("SIGKILL"));
  let back = "";
  client.stdout?.on("data", (chunk: Buffer) => (back += chunk.toString()));
  await once(client.stdout as NodeJS.ReadableStream, "data");

  const rulesAre = async (): Promise<string[]> => {
    const chains = await host.run("sh", "-c", "iptables-save; ip6tables-save");
    return [
      ...(/podnet:|HYPER/.test(chains) ? ["iptables"] : []),
      ...(/^table inet podnet$/m.test(await host.run("nft", "list", "tables", "inet"))
        ? ["nftables"]
        : []),
    ];
  };
  t.deepEqual(await rulesAre(), ["iptables"]);
  const until = path.join(rig.directory, "enough");
  const ask = async (work: () => Promise<void>): Promise<Asked[]> => {
    rmSync(until, { force: true });
    const questions = [hostOnLan, "5353", `udp53 ${lan}`, hostUplink, "5353", `udp53 ${lan}`];
    const asking = outside.run(process.execPath, asker, until, ...questions);
    try {
      await delay(1000);
      await work();
    } finally {
      writeFileSync(until, "");
    }
    return JSON.parse(await asking) as Asked[];
  };
  const asked = await ask(async () => {
    for (const [how, firewall] of [
      ["stop", "nftables"],
      ["kill", "iptables"],
      ["kill", "nftables"],
    ] as const) {
      const before = back.length;
      await rig.restart(how, { PODNET_FIREWALL: firewall });
      t.deepEqual(await rulesAre(), [firewall]);
      t.is((await rig.client.node.info({})).firewall.replace(/-.*/, ""), firewall);
      await delay(300);
      t.true(back.length > before, "it flows on");
    }
  });
  t.log(asked.map(({ times }) => `${times} new ones`).join(", "));
  for (const { times, otherwise } of asked) {
    t.true(times > 10);
    t.deepEqual(otherwise, []);
  }
  const numbers = back.split("\n").slice(0, -1).map(Number);
  t.deepEqual(numbers, [...numbers.keys()]);
  t.regex(
    await web.ask("tcp", "203.0.113.10", 7000),
    new RegExp(`^far ${hostUplink}`),
    "masqueraded",
  );

  // Drift: what others take away is put back, and in between it is noticed.
  const noticed = await ask(async () => {
    await host.run("nft", "delete", "table", "inet", "podnet");
    const deadline = performance.now() + 20_000;
    while ((await rulesAre()).length === 0 && performance.now() < deadline) await delay(50);
    const refused = async (): Promise<boolean> =>
      !(await rig.machine(outside).ask("udp", hostOnLan, 5353)).startsWith("udp53");
    while ((await refused()) && performance.now() < deadline) await delay(50);
  });
  t.true(noticed.every(({ otherwise }) => otherwise.length > 0));
  t.regex(await rig.machine(outside).ask("udp", hostOnLan, 5353), /^udp53/);
  await rig.client.pods.unpublishPorts({ idOrName: "web", ports: portsOf("*:5353:53/udp") });
  t.notRegex(await rig.machine(outside).ask("udp", hostOnLan, 5353), /^udp53/);
  t.regex(await rig.machine(outside).ask("tcp", hostOnLan, 8080), /./);
  await rig.client.node.down({});
  t.deepEqual(await rulesAre(), []);
});
