import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import type { Podnet } from "../../api/client.ts";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { ProcessSchema, RestartSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { PodnetError } from "../../core/errors.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
let image: string;

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  image = busyboxImage(rig.directory);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

async function run(
  name: string,
  process: MessageInitShape<typeof ProcessSchema>,
  restart?: MessageInitShape<typeof RestartSchema>,
): Promise<Pod> {
  const disks = [{ path: image, readOnly: true }];
  const boot = { cmdline: "podnet.root=vda", disks };
  const more = restart === undefined ? {} : { restart };
  const { pod } = await rig.client.pods.create({ spec: { name, boot, process, ...more } });
  if (pod === undefined) throw new Error("No pod");
  return pod;
}

const sh = (script: string): MessageInitShape<typeof ProcessSchema> => ({
  args: ["sh", "-c", script],
});

/** The pod once it is as wanted. */
async function until(client: Podnet, idOrName: string, is: (pod: Pod) => boolean): Promise<Pod> {
  for await (const { pod } of client.pods.watch({ idOrName }))
    if (pod !== undefined && is(pod)) return pod;
  throw new Error("The watch ended");
}
const ended = (idOrName: string): Promise<Pod> =>
  until(
    rig.client,
    idOrName,
    ({ state }) => state === PodState.STOPPED || state === PodState.FAILED,
  );

async function logs(idOrName: string, more = {}): Promise<{ stdout: string; stderr: string }> {
  const all = { stdout: "", stderr: "" };
  for await (const { output } of rig.client.pods.logs({ idOrName, ...more }))
    if (output.case !== undefined) all[output.case] += Buffer.from(output.value).toString();
  return all;
}

test.serial(
  "the main process has its user, its environment and the network, and ends the pod",
  async (t) => {
    await run("one", {
      ...sh("id; pwd; env; cat /etc/hosts /etc/hostname; echo wrong >&2; exit 3"),
      env: { COLOR: "blue" },
      user: "web",
      workdir: "/made/here",
    });
    const pod = await ended("one");
    t.is(pod.state, PodState.FAILED);
    t.is(pod.failure?.code, "PROCESS_FAILED");
    t.is(pod.reason, "The main process ended with exit code 3");
    t.is(pod.process?.exitCode, 3);
    t.is(pod.vm, undefined);
    const { stdout, stderr } = await logs("one");
    t.is(stderr, "wrong\n");
    t.regex(stdout, /^uid=1000\(web\) gid=100\(users\) groups=44\(logs\),100\(users\)$/m);
    t.regex(stdout, /^\/made\/here$/m);
    for (const line of ["COLOR=blue", "HOME=/srv", "HOSTNAME=one"])
      t.true(stdout.split("\n").includes(line), line);
    const [address = ""] = pod.interfaces[0]?.addresses ?? [];
    t.true(stdout.includes(`${address.split("/")[0]}\tone\n`));
    t.regex(stdout, /^one$/m);
    // The log outlives the machine, and goes with the pod.
    await rig.client.pods.delete({ idOrName: "one" });
  },
);

test.serial("a pod that fills its root has no room there, and goes on", async (t) => {
  const fill = "busybox dd if=/dev/zero of=/srv/fill bs=1M count=500 2>&1";
  await run(
    "full",
    sh(`${fill}; busybox rm /srv/fill; echo room >/srv/after; cat /srv/after; sleep 1000`),
  );
  await untilLogged("full", "room");
  t.regex((await logs("full")).stdout, /No space left on device/);
  t.is((await execIn(rig.client, "full", "cat", "/srv/after")).output, "room\n");
  await rig.client.pods.delete({ idOrName: "full", force: true });
});

test.serial(
  "pods of an image are clones, each with a root and randomness of its own, until the image changes",
  async (t) => {
    t.timeout(120_000);
    const script =
      "cat /proc/sys/kernel/random/uuid /etc/hostname; cat /srv/mine; echo mine >/srv/mine";
    const said: string[] = [];
    for (const name of ["first", "second"]) {
      const pod = await run(name, sh(`${script}; cat /proc/uptime >/srv/up; sleep 1000`));
      const detail = pod.spans.find(({ step }) => step === "vm.start")?.detail ?? "";
      t.regex(detail, /a clone with its NIC/);
      await untilLogged(name, "No such file");
      said.push((await logs(name)).stdout);
    }
    const [first = "", second = ""] = said.map((text) => text.split("\n")[0]);
    t.regex(first, /^[0-9a-f-]{36}$/);
    t.not(first, second);
    t.deepEqual(
      said.map((text) => text.split("\n")[1]),
      ["first", "second"],
    );

    // Of an image that was replaced there is a template of its own; pods that run keep the former.
    const root = path.join(rig.directory, "busybox");
    writeFileSync(path.join(root, "srv/version"), "2\n");
    rmSync(image);
    execFileSync("mksquashfs", [root, image, "-quiet", "-no-progress"]);
    await run("third", sh("cat /srv/version; sleep 1000"));
    await untilLogged("third", "2\n");
    t.is((await execIn(rig.client, "first", "ls", "/srv")).output, "mine\nup\n");
    for (const idOrName of ["first", "second", "third"])
      await rig.client.pods.delete({ idOrName, force: true });
  },
);

test.serial("what cannot be started fails the create, with the exit code of a shell", async (t) => {
  for (const { code, says, ...process } of [
    { args: ["/bin/missing"], code: 127, says: '"/bin/missing" does not exist' },
    { args: ["plain"], code: 126, says: '"plain" cannot be executed' },
    { args: ["sh"], user: "absent", code: 125, says: "absent" },
  ]) {
    const thrown = (await t.throwsAsync(run("none", process))) as Error & Partial<PodnetError>;
    t.is(thrown.code, "PROCESS_FAILED", thrown.message);
    t.is(Number(thrown.details?.["exit_code"]), code, thrown.message);
    t.true(thrown.message.includes(says), thrown.message);
  }
});

test.serial("a stop sends the stop signal, and kills a process that does not end", async (t) => {
  const stopSignal = "SIGUSR1";
  await run("polite", {
    ...sh('trap "echo bye; exit 5" USR1; echo up; while :; do sleep 0.1; done'),
    stopSignal,
  });
  await until(rig.client, "polite", ({ state }) => state === PodState.RUNNING);
  await untilLogged("polite", "up\n");
  const { pod } = await rig.client.pods.stop({ idOrName: "polite" });
  t.is(pod?.state, PodState.STOPPED);
  t.is(pod?.process?.exitCode, 5);
  t.is((await logs("polite")).stdout, "up\nbye\n");
  await rig.client.pods.delete({ idOrName: "polite" });

  await run("deaf", {
    ...sh('trap "" TERM; echo up; while :; do sleep 0.1; done'),
    stopTimeoutMs: 300,
  });
  await untilLogged("deaf", "up\n");
  const stopped = await rig.client.pods.stop({ idOrName: "deaf" });
  t.is(stopped.pod?.process?.signal, 9);
  t.is(stopped.pod?.process?.exitCode, 137);
  await rig.client.pods.delete({ idOrName: "deaf" });
});

async function untilLogged(idOrName: string, text: string): Promise<void> {
  let all = "";
  const stop = new AbortController();
  try {
    for await (const { output } of rig.client.pods.logs(
      { idOrName, follow: true },
      { signal: stop.signal },
    )) {
      if (output.case !== undefined) all += Buffer.from(output.value).toString();
      if (all.includes(text)) return;
    }
  } finally {
    stop.abort();
  }
}

test.serial("no output is lost over a restart of podnetd, and the end is noticed", async (t) => {
  await run("lasting", sh("for i in $(seq 1 400); do echo line $i; sleep 0.02; done; exit 7"));
  await untilLogged("lasting", "line 20\n");
  await rig.restart("kill");
  const pod = await ended("lasting");
  t.is(pod.process?.exitCode, 7);
  const wanted = Array.from({ length: 400 }, (_, i) => `line ${i + 1}\n`).join("");
  t.is((await logs("lasting")).stdout, wanted);
  t.is((await logs("lasting", { tailLines: 2 })).stdout, "line 399\nline 400\n");
  await rig.client.pods.delete({ idOrName: "lasting" });
});

test.serial("a pod is started again by its policy, as often as that says", async (t) => {
  await run("again", sh("echo try; exit 1"), { policy: "on-failure", max: 2 });
  const pod = await until(
    rig.client,
    "again",
    ({ state, process }) => state === PodState.FAILED && process?.restarting === false,
  );
  t.is(pod.process?.restarts, 2);
  t.is((await logs("again")).stdout, "try\ntry\ntry\n");
  t.is((await logs("again", { latestStart: true })).stdout, "try\n");
  await rig.client.pods.delete({ idOrName: "again" });
});

test.serial("on a terminal, with input: what is typed reaches the process", async (t) => {
  await run("typed", {
    ...sh("stty size; read a; echo got $a; exit 4"),
    terminal: true,
    stdin: true,
  });
  const next = Promise.withResolvers<void>();
  async function* input() {
    const start = { idOrName: "typed", fromStart: true };
    yield { input: { case: "start" as const, value: start } };
    yield { input: { case: "stdin" as const, value: Buffer.from("hello\n") } };
    await next.promise;
  }
  let all = "";
  let code = -1;
  for await (const { output } of rig.client.pods.attachProcess(input())) {
    if (output.case === "stdout") all += Buffer.from(output.value).toString();
    if (output.case === "exit") code = output.value.code;
  }
  next.resolve();
  t.is(code, 4);
  t.regex(all, /24 80\r\n/);
  t.regex(all, /hello\r\n.*got hello\r\n$/s);
  await rig.client.pods.delete({ idOrName: "typed" });
});

test.serial("a flood of output is bounded, and the pod still answers", async (t) => {
  await run("flood", sh("yes | head -c 40000000; echo done; sleep 1000"));
  t.is((await execIn(rig.client, "flood", "echo", "well")).output, "well\n");
  await rig.client.pods.delete({ idOrName: "flood", force: true });
  t.deepEqual(await rig.changes(), []);
});

test.serial(
  "a pod whose time is over is stopped, though podnetd was killed meanwhile",
  async (t) => {
    const boot = { cmdline: "podnet.root=vda", disks: [{ path: image, readOnly: true }] };
    const spec = { boot, process: sh("sleep 1000"), restart: { policy: "always" } };
    const short = { ...spec, name: "short", lifetime: { ttlS: 5 } };
    const { pod } = await rig.client.pods.create({ spec: short });
    t.is(Number(pod?.expiresAt?.seconds) - Number(pod?.createdAt?.seconds), 5);
    await rig.client.pods.create({
      spec: { ...spec, name: "gone", lifetime: { ttlS: 5, ttlDelete: true } },
    });
    await rig.restart("kill");
    const over = await until(rig.client, "short", ({ state }) => state === PodState.STOPPED);
    t.is(over.reason, "its time of 5 s is over");
    t.false(over.process?.restarting);
    t.is(over.vm, undefined);
    while ((await rig.client.pods.list({})).pods.some(({ name }) => name === "gone"))
      await new Promise((resolve) => setTimeout(resolve, 100));
    await rig.client.pods.delete({ idOrName: "short" });
  },
);

test.serial("a pod without traffic and callers is stopped, one that sends is not", async (t) => {
  t.timeout(60_000);
  const idle = { boot: { cmdline: "podnet.root=vda", disks: [{ path: image, readOnly: true }] } };
  const lifetime = { idleStopS: 10 };
  const send = "while :; do busybox nc -w 1 192.0.2.1 9; sleep 2; done";
  const make = (name: string, script: string) =>
    rig.client.pods.create({ spec: { ...idle, name, process: sh(script), lifetime } });
  await make("sends", send);
  await make("called", "sleep 1000");
  // (It is in use before the next machine is made, which may take a busy host longer than 10 s.)
  const caller = execIn(rig.client, "called", "sleep", "1000");
  const cut = t.throwsAsync(caller);
  await make("quiet", "sleep 1000");
  const { reason } = await until(rig.client, "quiet", ({ state }) => state === PodState.STOPPED);
  t.is(reason, "idle for 10 s");
  for (const idOrName of ["called", "sends"]) {
    const { pod } = await rig.client.pods.get({ idOrName });
    t.is(pod?.state, PodState.RUNNING, idOrName);
    t.truthy(pod?.idleSince);
  }
  for (const idOrName of ["quiet", "called", "sends"])
    await rig.client.pods.delete({ idOrName, force: true });
  await cut;
});
