import { once } from "node:events";
import test from "ava";
import { start } from "../unit/cli/fixtures/io.ts";
import { execIn, joinRig } from "./daemon-rig.ts";

test.serial(
  "logs -f goes on over a stop and a start of the pod, reports both, and ends when it is deleted",
  async (t) => {
    await using rig = await joinRig();
    const { client } = rig;
    await client.pods.create({ spec: { name: "web" } });
    const print = (text: string) => execIn(client, "web", "sh", "-c", `echo ${text} > /dev/ttyS0`);
    await print("before");
    const logs = start(["logs", "-f", "web"], { socket: rig.daemon.socket });
    const says = async (from: "stdout" | "stderr", wanted: RegExp): Promise<void> => {
      while (!wanted.test(logs[from].text)) await once(logs[from], "data");
    };
    await says("stdout", /before/);
    await print("while");
    await says("stdout", /while/);
    await client.pods.stop({ idOrName: "web", force: true });
    await says("stderr", /--- web has ended; its console follows when it runs again ---/);
    await client.pods.start({ idOrName: "web" });
    await says("stderr", /--- web runs ---/);
    await print("after");
    await says("stdout", /after/);
    await client.pods.delete({ idOrName: "web", force: true });
    t.is(await logs.done, 0);
    t.regex(logs.stderr.text, /--- web is deleted ---\n$/);
    for (const once of ["before", "while", "after"])
      t.is(logs.stdout.text.split(once).length, 2, `${once}: ${logs.stdout.text}`);
  },
);
