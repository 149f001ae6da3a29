/**
 * More plugins at once than podnetd takes: none is left without an answer, and no container
 * attached that has had its DEL.
 */
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { openCniRig } from "./cni-rig.ts";
import { runPlugin } from "./run-plugin.ts";

/** As few connections as may be configured. */
const room = 8;

/** A connection that asks for nothing. */
async function idle(socket: string): Promise<Socket> {
  const connection = connect(socket);
  connection.on("error", () => {});
  await once(connection, "connect");
  return connection;
}

test("while podnetd is full an ADD is refused with a hint to try again, and a DEL is done as soon as it was written down", async (t) => {
  t.timeout(60_000);
  await using cni = await openCniRig(
    `quarantine_s = 0\ndrift_s = 0\nlimits.connections = ${room}\n`,
  );
  const { rig, socket } = cni;
  const pendingDirectory = path.join(rig.directory, "state", "cni-pending");
  const container = await cni.container();
  await cni.done({ container });
  const plugin = (command: string) =>
    runPlugin(
      [
        `CNI_COMMAND=${command}`,
        `CNI_CONTAINERID=${container.name}`,
        `CNI_NETNS=${container.path}`,
        "CNI_IFNAME=eth0",
        "CNI_PATH=/opt/cni/bin",
      ],
      JSON.stringify({
        cniVersion: "1.1.0",
        name: "podnet",
        type: "podnet-cni",
        socket,
        pendingDirectory,
      }),
    );
  const held = await Promise.all(Array.from({ length: room }, () => idle(socket)));
  const add = await plugin("ADD");
  t.like(add.json, { code: 11 });
  t.regex(add.stdout, /podnetd is busy/);
  await container.ping("192.168.123.1");
  // podnetd is not started anew, and there is no room yet.
  t.like(await plugin("DEL"), { exit: 0, stdout: "" });
  await cni.converged();
  t.false(await container.reaches("192.168.123.1"));
  for (let waited = 0; readdirSync(pendingDirectory).length > 0; waited++, await delay(50))
    if (waited === 100) t.fail("The record is still there");
  t.true(held.every(({ closed }) => !closed));
  for (const connection of held) connection.destroy();
  for (let waited = 0; (await plugin("STATUS")).exit !== 0; waited++, await delay(50))
    if (waited === 100) t.fail("podnetd is full for ever");
  const again = await plugin("ADD");
  t.is(again.exit, 0);
  await container.ping("192.168.123.1");
  t.is((await plugin("DEL")).exit, 0);
  await cni.converged();
  t.deepEqual(await cni.links(), []);
});
