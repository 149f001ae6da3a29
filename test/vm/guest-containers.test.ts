import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { noBytes } from "../../guest-init/protocol/bytes.ts";
import { openHotDisk } from "../../hypervisor/disks/disks.ts";
import { firstDiskSlot } from "../../hypervisor/driver.ts";
import { never } from "./hypervisor-rig.ts";
import {
  closeMachine,
  comeBack,
  containers,
  create,
  disk,
  exec,
  guest,
  it,
  nothingLeft,
  openMachine,
  Output,
  runNew,
  shell,
  started,
  vm,
} from "./container-machine.ts";

// The life of containers in a guest, from their creation to their removal.

test.before(openMachine);
test.after.always(closeMachine);

test.serial("a container runs a program of its image, and its exit code comes", async (t) => {
  const { text, end } = await runNew("first", "echo out; cat /proc/1/comm; exit 3");
  t.is(text, "out\nsh");
  t.deepEqual(end, { code: 3 });
  await nothingLeft(t);
});

test.serial(
  "its files, processes and mounts are its own; network and name the guest's",
  async (t) => {
    const { text } = await runNew(
      "own",
      [
        "echo $(ls /)",
        "echo $(ls /proc | grep -c '^[0-9]')",
        "cat /etc/hostname /proc/sys/kernel/hostname",
        "grep sandbox /etc/hosts",
        "cat /etc/resolv.conf",
        "grep -c ' /run' /proc/mounts",
        "echo $(ls /dev)",
        "echo $(ls /sys/class/net)",
        "echo x > /new && cat /new",
        "echo y > /dev/null; head -c 3 /dev/zero | grep -c .",
        "id -u; echo $HOME; echo $HOSTNAME",
      ].join("; "),
    );
    const lines = text.split("\n");
    t.is(lines[0], "bin dev etc proc srv sys tmp");
    t.true(Number(lines[1]) <= 4, `${lines[1]} processes`);
    t.deepEqual(lines.slice(2, 4), ["sandbox", "sandbox"]);
    t.is(lines[4], "10.0.0.2\tsandbox");
    t.is(lines[5], "nameserver 10.0.0.53");
    t.is(lines[6], "0");
    t.is(lines[7], "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero");
    t.is(lines[8], "lo");
    t.is(lines[9], "x");
    t.deepEqual(lines.slice(-3), ["0", "/root", "sandbox"]);
    t.is(await shell("ls /new 2>/dev/null; echo $?"), "1");
    await nothingLeft(t);
  },
);

test.serial(
  "two share network and memory, and see neither files nor processes of each other",
  async (t) => {
    await create("server");
    await create("client");
    const serve = "echo of-server > /mine; echo shared > /dev/shm/both; exec sleep 1000";
    await containers.start(started("server", ["sh", "-c", serve]), never);
    await containers.start(started("client", ["sleep", "1000"]), never);
    t.deepEqual(
      (await containers.list(never)).map(({ id, state }) => [id, state.kind]),
      [
        ["server", "running"],
        ["client", "running"],
      ],
    );
    const look =
      "until [ -e /dev/shm/both ]; do sleep 0.02; done; cat /mine 2>/dev/null; cat /dev/shm/both; ps | grep -c 'sleep 100[0]'; readlink /proc/self/ns/net";
    const [one, two] = await Promise.all(
      ["server", "client"].map((container) => exec(["sh", "-c", look], { container })),
    );
    const net = await shell("readlink /proc/self/ns/net");
    t.is(one?.text, `of-server\nshared\n1\n${net}`);
    t.is(two?.text, `shared\n1\n${net}`);
    // The end of one says nothing about the other, whose mounts do not keep its own.
    await containers.remove("server", never);
    t.is(await shell("grep -c containers/server /proc/mounts"), "0");
    t.is((await exec(["true"], { container: "client" })).code, 0);
    t.like(await t.throwsAsync(exec(["true"], { container: "server" })), { code: "AGENT_REFUSED" });
    await containers.remove("client", never);
    await shell("rm /dev/shm/both");
    await nothingLeft(t);
  },
);

test.serial("what a container says last comes with its end, and is its file's alone", async (t) => {
  const path = "/dev/termination-log";
  const said = async (id: string, script: string): Promise<string | undefined> => {
    await create(id);
    const file = { path, mode: 0o666, uid: 0, gid: 0, readOnly: false, data: noBytes };
    await containers.placeFile({ ...file, id }, never);
    const spec = { ...started(id, ["sh", "-c", script]), messagePath: path };
    await containers.start(spec, never);
    const output = new Output();
    await containers.follow(id, 0, output, never);
    const { message } = await output.over;
    await containers.remove(id, never);
    return message && Buffer.from(message).toString();
  };
  t.is(await said("says", `echo because > ${path}; exit 3`), "because\n");
  t.is(await said("silent", "exit 3"), undefined);
  t.is((await said("much", `seq 1 3000 > ${path}`))?.length, 4096);
  // Nothing of the guest, and nothing of the image, can be had by it.
  const busybox = "/bin/busybox";
  const swap = `${busybox} ln -s /etc/passwd /dev/new; ${busybox} mv /dev/new ${path}`;
  t.is(await said("swaps", `${swap}; ${busybox} rm ${path}; echo own > ${path}`), "own\n");
  const over = `${busybox} umount ${path}; ${busybox} rm ${path}; ${busybox} ln -s /etc/passwd`;
  t.is(await said("unmounts", `echo own > ${path}; ${over} ${path}`), "own\n");
  await nothingLeft(t);
});

test.serial("what cannot be started is refused before, and can be removed", async (t) => {
  for (const [args, errno] of [
    [["/missing"], "ENOENT"],
    [["/bin/plain"], "EACCES"],
  ] as const) {
    await create("bad");
    const thrown = await t.throwsAsync(containers.start(started("bad", args), never));
    t.like(thrown, { code: "AGENT_REFUSED", field: "args[0]", details: { errno } });
    t.is((await containers.list(never))[0]?.state.kind, "created");
    await containers.remove("bad", never);
  }
  const absent = { id: "bad", disk: "absent", addresses: [], waitMs: 50 };
  t.like(await t.throwsAsync(containers.create(absent, never)), { field: "disk" });
  await containers.remove("bad", never);
  await nothingLeft(t);
});

test.serial("a disk that is no squashfs makes no container", async (t) => {
  const path = join(it.directory, "zeros.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  const zeros = { ...disk, name: "zeros", path, slot: firstDiskSlot + 1 };
  using file = openHotDisk(zeros);
  await vm.plugDisk(zeros, file.fd, never);
  const made = containers.create(
    { id: "zeros", disk: "zeros", addresses: [], waitMs: 5000 },
    never,
  );
  const thrown = await t.throwsAsync(made);
  t.like(thrown, { code: "AGENT_REFUSED", field: "disk", details: { errno: "EINVAL" } });
  await nothingLeft(t);
  t.is(await vm.unplugDisk(zeros.name, never), "unplugged");
});

test.serial("output of a flood comes whole, and holds up no other", async (t) => {
  await create("flood");
  await create("calm");
  const lines = 20_000;
  await containers.start(started("flood", ["sh", "-c", `seq ${lines}`]), never);
  await containers.start(started("calm", ["echo", "calm"]), never);
  const [flood, calm] = [new Output(), new Output()];
  await containers.follow("flood", 0, flood, never);
  await containers.follow("calm", 0, calm, never);
  await calm.over;
  await flood.over;
  t.is(calm.text, "calm\n");
  t.is(flood.text.split("\n").length, lines + 1);
  for (const container of ["flood", "calm"]) await containers.remove(container, never);
  await nothingLeft(t);
});

test.serial("signals, and an end that came while none followed it", async (t) => {
  await create("signalled");
  const trap = "trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 1; done";
  await containers.start(started("signalled", ["sh", "-c", trap]), never);
  const output = new Output();
  await containers.follow("signalled", 0, output, never);
  while (!output.text.includes("ready")) await new Promise((resolve) => setTimeout(resolve, 20));
  // Another podnetd: its output goes on where it was.
  await guest.close();
  await comeBack(t);
  await containers.signal("signalled", 15, never);
  const rest = new Output();
  await containers.follow("signalled", output.end, rest, never);
  t.deepEqual(await rest.over, { code: 7 });
  t.is(rest.text, "term\n");
  t.deepEqual((await containers.list(never))[0], {
    id: "signalled",
    state: { kind: "ended", end: { code: 7 } },
    at: 11,
  });
  // It has ended, and can still be read and asked for.
  const again = new Output();
  await containers.follow("signalled", 0, again, never);
  await again.over;
  t.is(again.text, "ready\nterm\n");
  t.like(await t.throwsAsync(containers.signal("signalled", 15, never)), { code: "AGENT_REFUSED" });
  await containers.remove("signalled", never);
  await nothingLeft(t);
});

test.serial(
  "an agent that starts anew has no containers, and its remove ends those of before",
  async (t) => {
    await create("before");
    await containers.start(started("before", ["sleep", "1000"]), never);
    const again = new Promise<void>((resolve) => guest.onReady(() => resolve()));
    // The engine takes the signal for a stack used up, and starts over.
    await t.throwsAsync(exec(["sh", "-c", "kill -SEGV 1; sleep 10"]), {
      code: "AGENT_DISCONNECTED",
    });
    await again;
    t.deepEqual(await containers.list(never), []);
    t.is(await shell("ps | grep -c 'sleep 100[0]'"), "1");
    await create("before");
    t.is(await shell("ps | grep -c 'sleep 100[0]'"), "0");
    await containers.remove("before", never);
    await nothingLeft(t);
  },
);

test.serial("removal kills all that runs in it, and its disk can be taken out", async (t) => {
  await create("busy");
  const fork = "for i in 1 2 3; do sleep 1000 & done; trap '' TERM; wait";
  await containers.start(started("busy", ["sh", "-c", fork]), never);
  const also = exec(["sleep", "1000"], { container: "busy" });
  t.is((await exec(["true"], { container: "busy" })).code, 0);
  await containers.remove("busy", never);
  t.is((await also).code, 137);
  await containers.remove("busy", never);
  t.is(await shell("ps | grep -c 'sleep 100[0]'"), "0");
  await nothingLeft(t);
  t.is(await vm.unplugDisk(disk.name, never), "unplugged");
  t.is(await shell("ls /sys/block"), "");
  const console = Buffer.from(vm.consoleTail()).toString();
  t.notRegex(console, /error|WARN|BUG/i);
});
