import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { busyboxImage } from "../lab/busybox-root.ts";
import { hyperctl } from "../lab/hyperctl.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { until } from "../lab/until.ts";
import { openRig } from "./daemon-rig.ts";

/** Output without the frames around its pieces. */
const unframed = (all: Buffer): string => {
  const pieces: string[] = [];
  for (let at = 0; at < all.length; ) {
    const end = at + 8 + all.readUInt32BE(at + 4);
    pieces.push(all.subarray(at + 8, end).toString());
    at = end;
  }
  return pieces.join("");
};

test.serial(
  "hyperctl's way through a real machine: run, exec, logs and stop, also after a kill of podnetd",
  async (t) => {
    const directory = mkdtempSync(path.join(tmpdir(), "podnet-hyper-"));
    t.teardown(() => rmSync(directory, { recursive: true, force: true }));
    const socket = path.join(directory, "hyper.sock");
    await using rig = await openRig(`[hyperd]\nsocket = "${socket}"\n`);
    const hyper = hyperctl(socket);
    busyboxImage(directory);
    const archive = path.join(directory, "app.tar");
    writeDockerArchive(archive, { layers: [tarOf(path.join(directory, "busybox"))], config: {} });
    await rig.daemon.podnet("image", "import", archive, "app:1");
    const before = await rig.inventory();
    t.regex((await hyper.call("GET", "/images/get")).body, /"app:1:[0-9a-f]{64}:\d+:\d+"/);

    const script = "cat /etc/greeting; read line; echo got $line; echo bad >&2; sleep 1000";
    const created = await hyper.send("POST", "/pod/create", {
      id: "pod-web",
      containers: [
        {
          name: "web",
          image: "app:1",
          command: ["sh", "-c", script],
          envs: [{ env: "COLOR", value: "blue" }],
          files: [{ path: "/etc/greeting", filename: "greeting", perm: "0644" }],
        },
      ],
      files: [{ name: "greeting", encoding: "raw", content: "hello\n" }],
      resource: { vcpu: 1, memory: 128 },
    });
    t.is(created.body, '{"Cause":"","Code":0,"ID":"pod-web"}\n');
    using attached = await hyper.hijack("/attach?container=web");
    t.is((await hyper.call("POST", "/pod/start?podId=pod-web")).status, 200);
    attached.write("typed\n");

    const command = encodeURIComponent(JSON.stringify(["sh", "-c", "echo $COLOR; cat; exit 42"]));
    const { body } = await hyper.call("POST", `/exec/create?container=web&command=${command}`);
    const exec = JSON.parse(body) as string;
    {
      using run = await hyper.hijack(`/exec/start?container=web&exec=${exec}`);
      run.write("piped\n");
      run.end();
      t.is(unframed(await run.all), "blue\npiped\n");
    }
    t.is((await hyper.call("GET", `/exitcode?container=web&exec=${exec}`)).body, "42\n");
    const stats = JSON.parse((await hyper.call("GET", "/pod/stats?podId=pod-web")).body) as {
      readonly cpu: { readonly usage: { readonly total: number } };
      readonly network: { readonly interfaces: readonly { readonly name: string }[] };
    };
    t.true(stats.cpu.usage.total > 0);
    t.is(stats.network.interfaces[0]?.name, "eth0");

    await rig.restart("kill");
    t.regex((await hyper.call("GET", "/list?item=container")).body, /:web:pod-web:running"/);
    const logs = await hyper.raw("GET /container/logs?container=web&stdout=yes HTTP/1.0\r\n\r\n");
    t.is(unframed(Buffer.from(logs.body)), "hello\ngot typed\n");
    await until("podnetd to have reached the agent", async () => {
      const { status } = await hyper.call("POST", "/container/kill?container=web&signal=9");
      return status === 201;
    });
    t.is((await hyper.call("GET", "/exitcode?container=web")).body, "137\n");
    t.is((await hyper.call("DELETE", "/pod?podId=pod-web")).status, 200);
    // (What the import left to be tidied up may go meanwhile.)
    const left = (await rig.changes(before)).filter((change) => change.startsWith("+"));
    t.deepEqual(left, []);
    t.is((await hyper.call("DELETE", "/image?imageId=app:1")).status, 200);
  },
);
