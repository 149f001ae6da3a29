import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { until } from "../lab/until.ts";
import { addressOf, execIn, joinRig } from "./daemon-rig.ts";

const port = 7007;

/** Prints each line of the one connection it gets. */
const printer = `
  require("node:net").createServer((socket) => socket.pipe(process.stdout)).listen(${port}, () => console.error("ready"));`;

test.serial(
  "what flows through a running pod loses nothing while podnetd is stopped, killed and started; a deleted bridge comes back under it",
  async (t) => {
    await using rig = await joinRig();
    const { host, internet } = rig.lab;
    const { pod } = await rig.client.pods.create({ spec: { name: "flow" } });
    const address = addressOf(pod);
    // An established connection that is masqueraded, with a number every 20 ms.
    const server = internet.spawn([process.execPath, "-e", printer], { stdio: "pipe" });
    t.teardown(() => server.kill("SIGKILL"));
    let received = "";
    server.stdout?.on("data", (chunk: Buffer) => (received += chunk.toString()));
    await once(server.stderr as NodeJS.ReadableStream, "data");
    const count = "i=0; while :; do echo $i; i=$((i+1)); usleep 20000; done";
    const started = await execIn(
      rig.client,
      "flow",
      "sh",
      "-c",
      `(${count}) 2>/dev/null | nc 203.0.113.10 ${port} >/dev/null 2>&1 &`,
    );
    t.is(started.code, 0, started.output);
    const pings = host.spawn(["ping", "-n", "-i", "0.02", address], { stdio: "pipe" });
    let counted = "";
    pings.stdout?.on("data", (chunk: Buffer) => (counted += chunk.toString()));
    await delay(500);
    for (const how of ["stop", "kill", "stop"] as const) {
      await rig.restart(how);
      await delay(500);
    }
    const numbers = received.split("\n").slice(0, -1).map(Number);
    pings.kill("SIGINT");
    await once(pings, "exit");
    t.log(`${numbers.length} lines; ${/.*packets transmitted.*/.exec(counted)?.[0]}`);
    t.true(numbers.length > 100, "the flow has begun");
    t.deepEqual(numbers, [...numbers.keys()]);
    const back = [...counted.matchAll(/ icmp_seq=(\d+) .* time=/g)].map(([, nth]) => Number(nth));
    t.deepEqual(
      back,
      back.map((_, index) => index + 1),
    );
    const sent = Number(/(\d+) packets transmitted/.exec(counted)?.[1]);
    t.true(sent > 100);
    // The last ones may have been on their way when ping was ended: fewer than were sent since the
    // last restart.
    t.true(sent - back.length < 20, counted);

    // QEMU holds the tap when another program deletes its bridge: with the bridge it is a port
    // again.
    await host.run("ip", "link", "del", "hyper0");
    // The repair may go on for a moment after the first reply, and a packet be lost by it.
    await until("three replies in a row", () =>
      host.ping(address, 3).then(
        () => true,
        () => false,
      ),
    );
    await rig.client.pods.delete({ idOrName: "flow", force: true });
  },
);
