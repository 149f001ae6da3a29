import test from "ava";
import { freePort } from "../../api/fixtures/free-port.ts";
import { until } from "../../../lab/until.ts";
import { digest, podOne, type HyperRig, startHyperd, storeImage } from "./rig.ts";

const web = (more: object = {}): object =>
  podOne({
    id: "pod-web",
    containers: [{ name: "web", image: "nginx:1.25", labels: { tier: "front" }, ...more }],
  });

/** A frame of docker's stdcopy. */
const framed = (kind: 1 | 2, text: string): string => {
  const head = Buffer.alloc(8);
  head[0] = kind;
  head.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([head, Buffer.from(text)]).toString("latin1");
};

const texts = async (all: Promise<Buffer>): Promise<string> => (await all).toString("latin1");

/** A pod whose container runs; answers the container's id, as hyperctl finds it. */
async function running(rig: HyperRig, more: object = {}): Promise<string> {
  storeImage(rig);
  const created = await rig.send("POST", "/pod/create", web(more));
  if (created.status !== 201) throw new Error(created.body);
  await rig.call("POST", "/pod/start?podId=pod-web");
  const { cData } = JSON.parse(
    (await rig.call("GET", "/list?item=container&pod=pod-web")).body,
  ) as { readonly cData: readonly string[] };
  return cData[0]?.split(":")[0] ?? "";
}

test("a create boots the machine, and the start begins the container", async (t) => {
  await using rig = await startHyperd();
  const missing = await rig.send("POST", "/pod/create", web());
  t.is(missing.status, 404, "hyperctl pulls the image and creates again");
  storeImage(rig);
  t.is((await rig.send("POST", "/pod/create", web({ command: ["-v"] }))).status, 201);
  t.is(rig.node.pods.find("pod-web").state, "running");
  t.deepEqual(rig.guest.started, []);
  t.regex(
    (await rig.call("GET", "/list?item=container")).body,
    /"[0-9a-f]{64}:web:pod-web:pending"/,
  );
  t.is((await rig.call("POST", "/pod/start?podId=pod-web")).status, 200);
  t.deepEqual(
    rig.guest.started.map(({ args }) => args),
    [["/entry", "-v"]],
  );
  t.is((await rig.call("POST", "/pod/start?podId=pod-web")).status, 200, "it is started once");
  t.is(rig.guest.started.length, 1);
  const listed = (await rig.call("GET", "/list?item=container")).body;
  t.regex(listed, /^\{"cData":\["[0-9a-f]{64}:web:pod-web:running"\],"item":"container"\}\n$/);
  const info = JSON.parse((await rig.call("GET", "/container/info?container=web")).body) as object;
  t.like(info, {
    podID: "pod-web",
    container: {
      name: "/web",
      image: "nginx:1.25",
      imageID: digest,
      commands: ["-v"],
      args: ["-v"],
      workingDir: "/srv",
      labels: { tier: "front" },
      env: [{ env: "PATH", value: "(not shown)" }],
    },
    status: { name: "web", phase: "running", terminated: { exitCode: 0 } },
  });
  t.like(JSON.parse((await rig.call("GET", "/pod/info?podName=pod-web")).body), {
    status: { containerStatus: [{ phase: "running" }] },
  });
});

test("starts at once begin the container once", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  await rig.send("POST", "/pod/create", web());
  const starts = [1, 2, 3, 4].map(() => rig.call("POST", "/pod/start?podId=pod-web"));
  for (const { status } of await Promise.all(starts)) t.is(status, 200);
  t.is(rig.guest.started.length, 1);
});

test("ports of a container are published, those with a protocol too", async (t) => {
  // hyperd refused or dropped each port that named its protocol, and its users lost --publish.
  await using rig = await startHyperd();
  storeImage(rig);
  const [one, two] = [await freePort(), await freePort()];
  const ports = [
    { hostPort: one, containerPort: 80, protocol: "TCP" },
    { hostPort: two, containerPort: 53, protocol: "udp" },
  ];
  t.is((await rig.send("POST", "/pod/create", web({ ports }))).status, 201);
  const { portMappings } = JSON.parse(
    (await rig.call("GET", "/pod/pod-web/portmappings")).body,
  ) as { readonly portMappings: readonly object[] };
  t.deepEqual(portMappings, [
    { containerPort: "80", hostPort: String(one), protocol: "tcp" },
    { containerPort: "53", hostPort: String(two), protocol: "udp" },
  ]);
  await rig.call("DELETE", "/pod?podId=pod-web");
});

test("a container that has not been started is there after a start of podnetd, and starts then", async (t) => {
  const first = await startHyperd();
  storeImage(first);
  await first.send("POST", "/pod/create", web());
  await first[Symbol.asyncDispose]();
  await using second = await startHyperd(first.config);
  await second.node.pods.recover("b");
  t.regex((await second.call("GET", "/list?item=container")).body, /:pending"/);
  t.is((await second.call("POST", "/pod/start?podId=pod-web")).status, 200);
  t.is(second.guest.started.length, 1);
});

test("a container that cannot be started fails the start, and ends its pod", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  await rig.send("POST", "/pod/create", web());
  rig.guest.refuses = true;
  const { status, body } = await rig.call("POST", "/pod/start?podId=pod-web");
  t.is(status, 500);
  t.regex(body, /^The main process cannot be started: "\/entry" does not exist\nPROCESS_FAILED/);
  await until("the pod's end", () => rig.node.pods.find("pod-web").state === "failed");
  rig.guest.refuses = false;
  t.is((await rig.call("POST", "/pod/start?podId=pod-web")).status, 200);
  t.is(rig.guest.started.length, 1);
});

test("hyperctl run: attached before the start, it has all output, and then the exit code", async (t) => {
  await using rig = await startHyperd();
  storeImage(rig);
  await rig.send("POST", "/pod/create", web());
  using attached = await rig.hijack("/attach?container=web");
  t.is(
    attached.head,
    "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
  );
  // Written before anyone could have followed it.
  rig.guest.say("first\n");
  await rig.call("POST", "/pod/start?podId=pod-web");
  rig.guest.say("wrong\n", true);
  attached.write("typed");
  attached.end();
  await until("the input", () => rig.guest.got.includes("(end)"));
  t.deepEqual(rig.guest.got, ["typed", "(end)"]);
  rig.guest.end({ code: 3 });
  const all = await texts(attached.all);
  t.is(all, framed(1, "first\n") + framed(2, "wrong\n"));
  const { status, body } = await rig.call("GET", "/exitcode?container=web&exec=");
  t.is(status, 200);
  t.is(body, "3\n");
  await until("the pod's end", () => rig.node.pods.find("pod-web").state === "failed");
  t.regex((await rig.call("GET", "/list?item=container")).body, /:failed"/);
});

test("output on a terminal has no frames", async (t) => {
  await using rig = await startHyperd();
  await running(rig, { tty: true });
  using attached = await rig.hijack("/attach?container=web");
  rig.guest.say("\u001b[1m$ ");
  t.is((await rig.call("POST", "/tty/resize?container=web&h=50&w=132")).status, 200);
  rig.guest.end({ code: 0 });
  t.is(await texts(attached.all), "\u001b[1m$ ");
  t.deepEqual(rig.guest.got, ["50x132"]);
});

test("a program is created, started by its id on another connection, and asked for its code", async (t) => {
  await using rig = await startHyperd();
  const id = await running(rig);
  const create = async (command: readonly string[], tty = false): Promise<string> => {
    const { status, body } = await rig.call(
      "POST",
      `/exec/create?container=${id}&command=${encodeURIComponent(JSON.stringify(command))}&tty=${tty}`,
    );
    t.is(status, 201);
    t.regex(body, /^"exec-[A-Za-z]{10}"\n$/);
    return JSON.parse(body) as string;
  };
  const codeOf = async (exec: string) =>
    (await rig.call("GET", `/exitcode?container=${id}&exec=${exec}`)).body;
  const failing = await create(["fail", "42"]);
  t.regex(await codeOf(failing), /^exec exec-\w+ has not been started\n/);
  using run = await rig.hijack(`/exec/start?container=${id}&exec=${failing}`);
  t.is(await texts(run.all), "");
  t.is(await codeOf(failing), "42\n");
  t.is(await codeOf(failing), "42\n", "as often as it is asked");
  t.like(rig.guest.programs[0], { args: ["fail", "42"], user: "www" });

  const both = await create(["both"]);
  using written = await rig.hijack(`/exec/start?container=${id}&exec=${both}`);
  t.is(await texts(written.all), framed(1, "out") + framed(2, "err"));
  const plain = await create(["both"], true);
  using onTerminal = await rig.hijack(`/exec/start?container=${id}&exec=${plain}`);
  t.is(await texts(onTerminal.all), "outerr");

  const cat = await create(["cat"]);
  using typed = await rig.hijack(`/exec/start?container=${id}&exec=${cat}`);
  typed.write("one");
  typed.write("two");
  typed.end();
  const all = await texts(typed.all);
  t.is(all.replaceAll(/\u0001\0{6}[\u0003\u0006]/g, ""), "onetwo");
  t.is(await codeOf(cat), "0\n");
});

test("a program runs in a pod's machine", async (t) => {
  await using rig = await startHyperd();
  await rig.send("POST", "/pod/create", podOne());
  const command = encodeURIComponent(JSON.stringify(["both"]));
  using run = await rig.hijack(`/execvm?pod=pod-one&command=${command}`);
  t.is(await texts(run.all), framed(1, "out") + framed(2, "err"));
});

test("a caller that goes takes its program with it, and no other", async (t) => {
  await using rig = await startHyperd();
  const id = await running(rig);
  const start = async () => {
    const { body } = await rig.call("POST", `/exec/create?container=${id}&command=["sleep"]`);
    const exec = JSON.parse(body) as string;
    return { exec, run: await rig.hijack(`/exec/start?container=${id}&exec=${exec}`) };
  };
  const [gone, stays] = [await start(), await start()];
  stays.run.end();
  gone.run[Symbol.dispose]();
  using _stays = stays.run;
  const live = rig.node.pods.running("pod-web");
  await until("the end of one", () => live.execs.list().length === 1);
  const { status, body } = await rig.call("GET", `/exitcode?container=${id}&exec=${gone.exec}`);
  t.is(status, 500);
  t.regex(body, /CANCELLED/);
});

test("what cannot be taken over is an error of HTTP, with a sentence", async (t) => {
  await using rig = await startHyperd();
  const id = await running(rig);
  await rig.send("POST", "/pod/create", podOne());
  const { body } = await rig.call("POST", `/exec/create?container=${id}&command=["fail","0"]`);
  const once = JSON.parse(body) as string;
  using _run = await rig.hijack(`/exec/start?container=${id}&exec=${once}`);
  const cases: readonly [string, number, RegExp][] = [
    [`/exec/start?container=${id}&exec=exec-none`, 500, /^no exec exec-none exists for container/],
    [`/exec/start?container=${id}&exec=${once}`, 500, /has been started already/],
    ["/exec/start?container=none", 500, /^Can not find container\(none\)/],
    ["/attach?container=pod-one", 500, /^Can not find container\(pod-one\)/],
    ["/execvm?pod=none&command=[]", 500, /^Can not find pod\(none\)/],
    ["/execvm?pod=pod-one&command=[]", 500, /No program is named/],
    ["/execvm?pod=pod-one&command=ls", 500, /^command is not JSON/],
    ["/pod/start?podId=pod-one&attach=yes", 400, /does not take over/],
  ];
  for (const [path, status, sentence] of cases) {
    using refused = await rig.hijack(path);
    t.regex(refused.head, new RegExp(`^HTTP/1\\.1 ${status} `), path);
    t.regex(await texts(refused.all), sentence, path);
  }
  const plainly = await rig.call("POST", `/attach?container=${id}`);
  t.is(plainly.status, 426);
  const killed = await rig.call("POST", `/pod/kill?podName=pod-one`);
  t.regex(killed.body, /^can not find container /);
});

test("signals reach the container; a stop ends it with its pod", async (t) => {
  await using rig = await startHyperd();
  const id = await running(rig);
  const cases: readonly [string, number][] = [
    [`/container/kill?container=${id.slice(0, 12)}&signal=1`, 201],
    ["/pod/kill?podName=pod-web&signal=10", 200],
    [`/pod/kill?podName=pod-web&container=${id}`, 200],
  ];
  for (const [path, status] of cases) {
    const answered = await rig.call("POST", path);
    t.is(answered.status, status);
    t.is(answered.body, "{}\n");
  }
  t.deepEqual(rig.guest.got, ["signal 1", "signal 10", "signal 15"]);
  t.is((await rig.call("POST", `/container/kill?container=${id}&signal=99`)).status, 500);
  t.is((await rig.call("POST", `/container/kill?container=${id}&signal=HUP`)).status, 500);
  rig.guest.obeys = true;
  t.is((await rig.call("POST", `/container/stop?container=${id}`)).status, 201);
  t.is(rig.node.pods.find("pod-web").state, "stopped");
  const stopped = await rig.call("POST", `/container/kill?container=${id}`);
  t.regex(stopped.body, /^container pod-web is stopped\n/);
  t.is((await rig.call("GET", `/exitcode?container=${id}`)).body, "143\n");
  t.is((await rig.call("POST", `/container/start?container=${id}`)).status, 204);
  t.is(rig.node.pods.find("pod-web").state, "running");
});

test("logs are the lines asked for, each behind its stream, also after the end", async (t) => {
  await using rig = await startHyperd();
  const id = await running(rig);
  rig.guest.say("one\ntwo\n");
  rig.guest.say("bad\n", true);
  // HTTP/1.0 has no chunks: the answer ends with the connection.
  const logs = async (query: string) =>
    (await rig.raw(`GET /container/logs?container=${id}&${query} HTTP/1.0\r\n\r\n`)).body;
  t.is(
    await logs("stdout=yes&stderr=yes"),
    framed(1, "one\n") + framed(1, "two\n") + framed(2, "bad\n"),
  );
  t.is(await logs("stderr=1"), framed(2, "bad\n"));
  t.is(await logs("stdout=yes&stderr=yes&tail=1"), framed(2, "bad\n"));
  t.is(await logs("stdout=yes&since=4000000000"), "");
  t.regex(await logs("stderr=yes&timestamps=yes"), /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z bad\n$/);
  const none = await rig.call("GET", `/container/logs?container=${id}`);
  t.is(none.status, 400);
  t.regex(none.body, /^Bad parameters: you must choose at least one stream/);
  const when = await rig.call("GET", `/container/logs?container=${id}&stdout=1&since=noon`);
  t.regex(when.body, /^"noon" is not a time/);
  const process = rig.node.pods.live(rig.node.pods.find("pod-web").id)?.process;
  if (process === undefined) throw new Error("The container does not run");
  const attach = process.attach.bind(process);
  const attached = Promise.withResolvers<void>();
  process.attach = (signal) => {
    attached.resolve();
    return attach(signal);
  };
  const following = logs("stdout=yes&follow=yes&tail=0");
  await attached.promise;
  rig.guest.say("three\n");
  rig.guest.end({ code: 0 });
  t.is(await following, framed(1, "three\n"));
  await until("the pod's end", () => rig.node.pods.find("pod-web").state === "stopped");
  t.is(await logs("stderr=1"), framed(2, "bad\n"));
  t.regex((await rig.call("GET", "/list?item=container")).body, /:succeeded"/);
  t.like(JSON.parse((await rig.call("GET", "/pod/info?podName=pod-web")).body), {
    status: { phase: "Succeeded" },
  });
});

test("images are listed, pulled and removed in podnet's own store", async (t) => {
  await using rig = await startHyperd();
  const id = digest.replace("sha256:", "");
  storeImage(rig);
  storeImage(rig, "registry.example.org/web:2");
  t.is(
    (await rig.call("GET", "/images/get?all=no&quiet=no")).body,
    `{"imagesList":["nginx:1.25:${id}:7:4096","registry.example.org/web:2:${id}:7:4096"]}\n`,
  );
  const pulled = await rig.raw(
    "POST /image/create?imageName=nginx&tag=1.25 HTTP/1.0\r\nX-Registry-Auth: e30=\r\n\r\n",
  );
  t.is(pulled.status, 200);
  t.regex(pulled.body, new RegExp(`\\{"status":"Digest: ${digest}"\\}\\r\\n`));
  t.deepEqual(rig.pulled, ["nginx:1.25"]);
  const absent = await rig.raw("POST /image/create?imageName=absent HTTP/1.0\r\n\r\n");
  t.regex(absent.body, /"error":"There is no image \\"absent\\" \(IMAGE_NOT_FOUND\)"\}\r\n$/);
  const withAuth = (auth: string) =>
    rig.raw(
      `POST /image/create?imageName=nginx:1.25 HTTP/1.0\r\nX-Registry-Auth: ${Buffer.from(auth).toString("base64")}\r\n\r\n`,
    );
  t.is((await withAuth('{"username":"a","password":"b"}')).status, 200);
  t.deepEqual(rig.credentials.at(-1), { user: "a", password: "b" });
  // As in containerd: one for another server is left out.
  const elsewhere = '{"username":"a","password":"b","serveraddress":"other.example.org"}';
  t.is((await withAuth(elsewhere)).status, 200);
  t.is(rig.credentials.at(-1), undefined);
  await withAuth('{"username":"a","identitytoken":"x"}');
  t.deepEqual(rig.credentials.at(-1), { identityToken: "x" });
  t.regex((await withAuth('{"identitytoken":"x y"}')).body, /^The token is none/);
  t.regex((await withAuth('{"username":"a"}')).body, /^The credential has no user or no password/);
  t.regex((await withAuth('{"username":7}')).body, /^"username" of the credentials is no text/);
  const unreadable = await withAuth("hunter2");
  t.regex(unreadable.body, /^The credentials are no JSON in base64/);
  t.false(unreadable.body.includes("hunter2"));
  t.is(
    (await rig.call("DELETE", "/image?imageId=registry.example.org/web:2&force=no")).body,
    '{"imagesList":[{"untaged":"registry.example.org/web:2","deleted":""}]}\n',
  );
  t.is(
    (await rig.call("DELETE", "/image?imageId=nginx:1.25&force=no")).body,
    `{"imagesList":[{"untaged":"nginx:1.25","deleted":""},{"untaged":"","deleted":"${digest}"}]}\n`,
  );
  t.is((await rig.call("DELETE", "/image?imageId=nginx:1.25")).status, 404);
  t.is((await rig.call("GET", "/images/get")).body, '{"imagesList":[]}\n');
});
