import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { busyboxImage } from "../lab/busybox-root.ts";
import { type Hyperctl, hyperctl } from "../lab/hyperctl.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { until } from "../lab/until.ts";
import { openRig, type Rig } from "./daemon-rig.ts";

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

/** Containers of one pod, in a machine that has booted for them. */
async function several(t: ExecutionContext, rig: Rig, hyper: Hyperctl): Promise<void> {
  const before = await rig.inventory();
  const script = (text: string) => ["sh", "-c", `${text}; sleep 1000`];
  const created = await hyper.send("POST", "/pod/create", {
    id: "pod-two",
    volumes: [{ name: "shared" }],
    containers: [
      {
        name: "one",
        image: "app:1",
        command: script("cat /etc/greeting; echo left > /data/file"),
        volumes: [{ path: "/data", volume: "shared" }],
        files: [{ path: "/etc/greeting", filename: "greeting", perm: "0644" }],
      },
      {
        name: "two",
        image: "app:1",
        command: script(
          "until cat /data/file; do sleep 0.1; done; ip address show eth0 | grep -c inet",
        ),
        volumes: [{ path: "/data", volume: "shared", readOnly: true }],
      },
    ],
    files: [{ name: "greeting", encoding: "raw", content: "hello\n" }],
    resource: { vcpu: 1, memory: 160 },
  });
  t.is(created.body, '{"Cause":"","Code":0,"ID":"pod-two"}\n');
  const started = await hyper.call("POST", "/pod/start?podId=pod-two");
  t.is(started.status, 200, started.body);
  const logs = async (name: string): Promise<string> => {
    const line = `GET /container/logs?container=${name}&stdout=yes HTTP/1.0\r\n\r\n`;
    return unframed(Buffer.from((await hyper.raw(line)).body));
  };
  await until("the second to read what the first wrote", async () =>
    /^(?:cat: .*\n)*left\n\d/.test(await logs("two")),
  );
  t.is(await logs("one"), "hello\n");
  const exec = async (container: string, text: string): Promise<string> => {
    const command = encodeURIComponent(JSON.stringify(["sh", "-c", text]));
    const { body } = await hyper.call(
      "POST",
      `/exec/create?container=${container}&command=${command}`,
    );
    using run = await hyper.hijack(
      `/exec/start?container=${container}&exec=${JSON.parse(body) as string}`,
    );
    run.end();
    return unframed(await run.all);
  };
  t.is(
    await exec("two", "cat /data/file; ls /etc/greeting 2>/dev/null; echo $?"),
    "left\n1\n",
    "not the other's",
  );
  await rig.restart("kill");
  t.regex(
    (await hyper.call("GET", "/list?item=container")).body,
    /:one:pod-two:running".*:two:pod-two:running"/,
  );
  await until("podnetd to have reached the agent", async () => {
    const { status } = await hyper.call("POST", "/container/kill?container=one&signal=9");
    return status === 201;
  });
  t.is((await hyper.call("GET", "/exitcode?container=one")).body, "137\n");
  t.is((await hyper.call("POST", "/container/start?container=one")).status, 204);
  await until("it to run again", async () => (await logs("one")) === "hello\nhello\n");
  t.is((await hyper.call("DELETE", "/container?container=two")).status, 200);
  t.is((await hyper.call("POST", "/pod/stop?podId=pod-two")).status, 200);
  t.is((await hyper.call("POST", "/pod/start?podId=pod-two")).status, 200);
  await until("it to run in another machine", async () =>
    (await logs("one")).endsWith("hello\nhello\nhello\n"),
  );
  t.is((await hyper.call("DELETE", "/pod?podId=pod-two")).status, 200);
  const left = (await rig.changes(before)).filter((change) => change.startsWith("+"));
  t.deepEqual(left, []);
}

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
    // What it wrote before the kill may have to come from the guest.
    await until("all that it wrote", async () => {
      const line = "GET /container/logs?container=web&stdout=yes HTTP/1.0\r\n\r\n";
      return unframed(Buffer.from((await hyper.raw(line)).body)) === "hello\ngot typed\n";
    });
    await until("podnetd to have reached the agent", async () => {
      const { status } = await hyper.call("POST", "/container/kill?container=web&signal=9");
      return status === 201;
    });
    t.is((await hyper.call("GET", "/exitcode?container=web")).body, "137\n");
    t.is((await hyper.call("DELETE", "/pod?podId=pod-web")).status, 200);
    // (What the import left to be tidied up may go meanwhile.)
    const left = (await rig.changes(before)).filter((change) => change.startsWith("+"));
    t.deepEqual(left, []);
    await several(t, rig, hyper);
    t.is((await hyper.call("DELETE", "/image?imageId=app:1")).status, 200);
  },
);
