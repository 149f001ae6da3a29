import { writeFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { serve } from "../api/fixtures/server.ts";
import { playDaemon } from "./fixtures/daemon.ts";
import { podnet } from "./fixtures/io.ts";

const daemon = playDaemon();
const server = await serve(daemon.routes);
const socket = server.h2;
test.after.always(() => server.kill());

const here = { socket };
const onTerminal = { socket, tty: true };
/** Everything between escape sequences. */
const plain = (text: string): string => text.replace(/\u001b\[[0-9;]*[A-Za-z]/g, "");

test("create says where the pod is, and keeps progress for terminals", async (t) => {
  const piped = await podnet(["create", "--name", "web"], here);
  t.deepEqual(piped, {
    code: 0,
    out: "web  abcdefghijkl  running  192.168.123.2\n",
    err: "",
  });
  const shown = await podnet(["create"], onTerminal);
  t.is(shown.code, 0);
  t.regex(plain(shown.err), /Booting the VM …/);
  t.regex(plain(shown.err), /✓ {3}1\.43 s {2}Booting the VM {2}tcg\n/);
});

test("create takes the name alone, and not two names", async (t) => {
  t.is((await podnet(["create", "alone", "-q"], here)).code, 0);
  t.true(daemon.calls.creates.some(({ spec }) => spec?.name === "alone"));
  t.is((await podnet(["create", "same", "--name", "same"], here)).code, 0);
  const two = await podnet(["create", "one", "--name", "other"], here);
  t.is(two.code, 2);
  t.regex(two.err, /two names/);
});

test("create turns its flags into a spec", async (t) => {
  const args = `create --name all -l a=b --label c=d=e --vcpu 2 --memory 1G --kernel /k --initrd /i
    --disk /d.qcow2,format=qcow2,readonly --disk /e,ro --disk /g,max=2G --disk /f,write-through --network lan --address 10.0.0.2 --mac 52:54:00:00:00:09 --mtu 1400
    --gateway 10.0.0.1 --guest-name up --interface other,address=10.1.0.2/24,name=down --hostname h --dns 192.0.2.1
    --dns 192.0.2.2 --dns-search example.org --dns-option ndots:2 --route 10.2.0.0/16,via=10.1.0.1
    --factory cold --agent none --request-id r1 --timeout 90s -q`;
  const userData = path.join(server.folder, "user-data");
  writeFileSync(userData, "#cloud-config\n");
  const { code, out, err } = await podnet(
    [
      ...args.split(/\s+/),
      "--cloud-init",
      userData,
      "--cmdline",
      "a b",
      "--route",
      "default via 10.1.0.9 dev down",
    ],
    here,
  );
  // Two default routes: the gateway of `up`, and the last --route.
  t.is(code, 2);
  t.is(out, "");
  t.regex(err, /GATEWAY_CONFLICT[^]*field: routes\[1\]\.destination/);
  const request = daemon.calls.creates.find(({ spec }) => spec?.name === "all");
  t.is(request?.requestId, "r1");
  t.is(request?.timeoutMs, 90_000);
  t.like(request?.spec, {
    labels: { a: "b", c: "d=e" },
    resources: { vcpu: 2, memoryMib: 1024 },
    boot: {
      kernel: "/k",
      initrd: "/i",
      cmdline: "a b",
      factory: "cold",
      agent: "none",
      cloudInit: { userData: "#cloud-config\n" },
      disks: {
        0: { path: "/d.qcow2", format: "qcow2", readOnly: true, writeThrough: false },
        1: { path: "/e", readOnly: true },
        2: { path: "/g", maxMib: 2048 },
        3: { path: "/f", readOnly: false, writeThrough: true },
        length: 4,
      },
    },
    interfaces: {
      0: {
        network: "lan",
        address: "10.0.0.2",
        mac: "52:54:00:00:00:09",
        mtu: 1400,
        guestName: "up",
      },
      1: { network: "other", address: "10.1.0.2/24", guestName: "down" },
      length: 2,
    },
    hostname: "h",
    dns: { servers: ["192.0.2.1", "192.0.2.2"], search: ["example.org"], options: ["ndots:2"] },
    routes: {
      0: { destination: "10.2.0.0/16", gateway: "10.1.0.1", interface: "" },
      1: { destination: "default", gateway: "10.1.0.9", interface: "down" },
      length: 2,
    },
  });
});

test("create reads a file, flags over it", async (t) => {
  const file = path.join(server.folder, "pod.yaml");
  writeFileSync(
    file,
    "name: from-file\nresources: {memory_mib: 64}\ninterfaces:\n  - {mtu: 1400}\n  - {network: lan}\n",
  );
  const { code } = await podnet(["create", "-f", file, "--mac", "52:54:00:00:00:0a"], here);
  t.is(code, 0);
  t.like(daemon.calls.creates.find(({ spec }) => spec?.name === "from-file")?.spec, {
    resources: { memoryMib: 64 },
    interfaces: { 0: { mtu: 1400, mac: "52:54:00:00:00:0a" }, 1: { network: "lan" }, length: 2 },
  });
});

test("a pod file that does not fit is refused by its field", async (t) => {
  for (const [text, wanted] of [
    ["nmae: x", /UNKNOWN_FIELD[^]*field: nmae/],
    ["interfaces: [{maccaddr: x}]", /field: interfaces\[0\]\.maccaddr/],
    ["interfaces: 7", /INVALID_ARGUMENT/],
    ["- a", /INVALID_ARGUMENT/],
    ["a: [", /neither YAML nor JSON/],
  ] as const) {
    const file = path.join(server.folder, "bad.yaml");
    writeFileSync(file, text);
    const { code, err } = await podnet(["create", "-f", file], here);
    t.is(code, 2, text);
    t.regex(err, wanted);
  }
  t.regex((await podnet(["create", "-f", "/nonexistent"], here)).err, /cannot be read \(ENOENT\)/);
});

test("create --plan prints the plan, harmlessly", async (t) => {
  const { code, out } = await podnet(["create", "--plan"], here);
  t.is(code, 0);
  t.is(out, "Open the tap tap.open\n  add link pnabc type tap\n  evil \\u001b]0;x\\u0007\n");
  const { out: json } = await podnet(["create", "--plan", "-o", "json"], here);
  t.like(JSON.parse(json), { apiVersion: "podnet.v1", kind: "Plan", podId: "abcdefghijkl" });
});

test("create and run say how large a layer is that stays", async (t) => {
  const words = "create kept -q --image app:1 --layer persistent --layer-size 1G";
  t.is((await podnet(words.split(" "), here)).code, 0);
  const found = daemon.calls.creates.find(({ spec }) => spec?.name === "kept");
  t.like(found?.spec?.boot, { image: "app:1", layer: "persistent", layerMib: 1024 });
  const { code, err } = await podnet(["create", "--layer", "kept"], here);
  t.is(code, 2);
  t.regex(err, /ephemeral, persistent/);
});

test("create and run turn times into a lifetime, and refuse what has no meaning", async (t) => {
  const run = async (words: string) => podnet(words.split(" "), here);
  t.is((await run("create old -q --ttl 2h --idle-stop 10m --rm")).code, 0);
  const found = daemon.calls.creates.find(({ spec }) => spec?.name === "old");
  t.like(found?.spec?.lifetime, { ttlS: 7200, ttlDelete: true, idleStopS: 600 });
  t.is((await run("create idle -q --idle-stop 1m")).code, 0);
  const idle = daemon.calls.creates.find(({ spec }) => spec?.name === "idle");
  t.like(idle?.spec?.lifetime, { ttlS: 0, ttlDelete: false, idleStopS: 60 });
  for (const [words, why] of [
    ["create --rm", /Give --ttl/],
    ["create --ttl 1500ms", /--ttl takes whole seconds/],
    ["create --ttl soon", /is not a duration/],
    ["create --idle-stop 0", /no time/],
    ["run -d --rm app:1", /or give --ttl/],
  ] as const) {
    const { code, err } = await run(words);
    t.is(code, 2, words);
    t.regex(err, why);
  }
});
