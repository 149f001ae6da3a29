import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { labAddresses } from "../lab/lab.ts";
import { execIn } from "./daemon-rig.ts";
import { openPortsRig, type PortsRig, portsOf, putFile, six } from "./ports-rig.ts";

let rig: PortsRig;
test.serial.before(async () => {
  rig = await openPortsRig('[network]\ncidr6 = "fd00:123::/64"\n');
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** Sends a number every 20 ms, and prints what comes back; reports when the connection ends. */
const counter = `
  const socket = require("node:net").connect(8080, "${labAddresses.hostOnLan}");
  let n = 0;
  setInterval(() => socket.write(n++ + "\\n"), 20);
  socket.pipe(process.stdout);
  socket.on("error", ({ code }) => console.log("ended with " + code));
  socket.on("close", () => console.log("ended"));`;

test.serial(
  "a connection from outside loses nothing while podnetd is stopped, killed and started",
  async (t) => {
    await rig.client.pods.create({ spec: { name: "flow", ports: portsOf("*:8080:7") } });
    const pod = await rig.pod("flow");
    await pod.echo(7);
    const client = rig.lab.lan.spawn([process.execPath, "-e", counter], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    t.teardown(() => client.kill("SIGKILL"));
    let back = "";
    client.stdout?.on("data", (chunk: Buffer) => (back += chunk.toString()));
    await once(client.stdout as NodeJS.ReadableStream, "data");
    for (const how of ["stop", "kill"] as const) {
      const before = back.length;
      await rig.restart(how);
      // It flows on, and what does not within 20 s has ended.
      for (let waited = 0; back.length === before && waited < 1000; waited++) await delay(20);
      t.true(back.length > before, `nothing came after the ${how}`);
    }
    const numbers = back.split("\n").slice(0, -1).map(Number);
    t.deepEqual(numbers, [...numbers.keys()]);
    // The control: it is by the published port that it flows, and a new one is refused without.
    await rig.client.pods.unpublishPorts({ idOrName: "flow", ports: portsOf("*:8080:7") });
    t.regex(await rig.machine(rig.lab.lan).ask("tcp", labAddresses.hostOnLan, 8080), /refused/);
  },
);

/**
 * What a guest's kernel takes for SCTP, in the order of loading: the kernel's package has it, our
 * image does not.
 */
const modules = [
  "lib/libcrc32c",
  "net/ipv4/udp_tunnel",
  "net/ipv6/ip6_udp_tunnel",
  "net/sctp/sctp",
];

async function loadSctp(name: string): Promise<void> {
  const cache = path.resolve(import.meta.dirname, "../../build/cache/image");
  for (const module of modules) {
    const [file] = globSync(`linux-image-*/lib/modules/*/kernel/${module}.ko`, { cwd: cache });
    if (file === undefined) throw new Error(`The kernel's package has no ${module}`);
    const into = `/tmp/${path.basename(file)}`;
    await putFile(rig.client, name, into, readFileSync(path.join(cache, file)));
    const { code, output } = await execIn(rig.client, name, "insmod", into);
    if (code !== 0 && !/File exists/.test(output)) throw new Error(`${module}: ${output}`);
  }
}

test.serial(
  "SCTP reaches a pod from another one by the host's port, by both families, and by no other",
  async (t) => {
    const { client } = rig;
    const ports = portsOf("*:3868:38/sctp");
    await client.pods.create({ spec: { name: "server", ports } });
    await client.pods.create({ spec: { name: "client" } });
    await loadSctp("server");
    await loadSctp("client");
    const [server, asker] = [await rig.pod("server"), await rig.pod("client")];
    await server.serve("sctp", 38, "sctp38");
    const onLan = [labAddresses.hostOnLan, six.hostOnLan];
    const answered = async (port: number, ...at: readonly string[]): Promise<void> => {
      for (const address of at) t.regex(await asker.ask("sctp", address, port), /^sctp38 /);
    };
    const unanswered = async (port: number): Promise<void> => {
      for (const answer of await Promise.all(onLan.map((at) => asker.ask("sctp", at, port))))
        t.regex(answer, /refused|timed out|reachable/);
    };
    await answered(3868, ...onLan, "192.168.123.1", "fd00:123::1");
    await unanswered(3869);
    await client.pods.unpublishPorts({ idOrName: "server", ports });
    await unanswered(3868);
    await client.pods.publishPorts({ idOrName: "server", ports });
    await answered(3868, ...onLan);
  },
);
