import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { answer, filterOf } from "../../daemon/cri/seccomp/filter.ts";
import { hexText } from "../../guest-init/protocol/bytes.ts";
import { openHotDisk } from "../../hypervisor/disks/disks.ts";
import { firstDiskSlot } from "../../hypervisor/driver.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { until } from "../lab/until.ts";
import { never } from "./hypervisor-rig.ts";
import {
  closeMachine,
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

// What a container in a guest has, and what it does not get at.

test.before(openMachine);
test.after.always(closeMachine);

test.serial("users, groups and capabilities are as asked for", async (t) => {
  const status =
    "grep -E '^(Uid|Gid|Groups|CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -s '\\t ' ' '";
  const asked = { user: "web", groups: [7], capabilities: [10], noNewPrivileges: true };
  const { text } = await runNew("as-web", status.replace("tr -s '\\t ' ' '", "cat"), asked);
  const words = text.replaceAll(/\s+/g, " ");
  t.regex(words, /Uid: 1000 1000 1000 1000 Gid: 100 100 100 100 Groups: 7 44 100/);
  t.regex(words, /CapEff: 0{16} CapBnd: 0000000000000400 NoNewPrivs: 1/);
  const root = await runNew("as-root", "grep -E '^Cap(Eff|Bnd)' /proc/self/status", {
    capabilities: [0, 10],
  });
  t.regex(root.text.replaceAll(/\s+/g, " "), /CapEff: 0{13}401 CapBnd: 0{13}401/);
  const missing = runNew("no-such", "true", { user: "missing" });
  t.like(await t.throwsAsync(missing), { code: "AGENT_REFUSED" });
  await containers.remove("no-such", never);
  await nothingLeft(t);
});

test.serial(
  "a volume is shared by the containers that have it, and one may only read it",
  async (t) => {
    const volume = { volume: "cache", mode: 0o2770, uid: 0, gid: 44, readOnly: false };
    await create("writer");
    await containers.share({ ...volume, id: "writer", path: "/var/cache/app" }, never);
    await containers.start(
      {
        ...started("writer", ["sh", "-c", "echo of-writer > /var/cache/app/x; sleep 1000"]),
        user: "web",
      },
      never,
    );
    await create("reader");
    await containers.share(
      { ...volume, id: "reader", path: "/cache", readOnly: true, mode: 0 },
      never,
    );
    const look =
      "until [ -s /cache/x ]; do sleep 0.02; done; cat /cache/x; [ -g /cache ] && echo group; " +
      "echo y > /cache/y; echo $?";
    await containers.start(started("reader", ["sh", "-c", look]), never);
    const output = new Output();
    await containers.follow("reader", 0, output, never);
    await output.over;
    t.is(output.text, "of-writer\ngroup\n1\n");
    const late = containers.share({ ...volume, id: "writer", path: "/late" }, never);
    t.like(await t.throwsAsync(late), { code: "AGENT_REFUSED" }, "it has started");
    for (const id of ["writer", "reader"]) await containers.remove(id, never);
    await nothingLeft(t);
  },
);

test.serial(
  "a directory of its own hides the image's, and becomes read-only at the start",
  async (t) => {
    const own = { id: "own", path: "/bin/extra", mode: 0o750, uid: 0, gid: 1000, readOnly: true };
    const file = { id: "own", mode: 0o440, uid: 1000, gid: 7, readOnly: true };
    await create("own");
    await containers.share({ ...own, path: "/etc" }, never);
    const passwd = "web:x:1000:100::/:/bin/sh\n";
    await containers.placeFile(
      { ...file, mode: 0o444, path: "/etc/passwd", data: Buffer.from(passwd) },
      never,
    );
    await containers.placeFile(
      { ...file, path: "/etc/app/token", data: Buffer.from("t\n") },
      never,
    );
    const script =
      "ls /etc; cat /etc/app/token; stat -c '%u %g %a' /etc /etc/app/token; touch /etc/x; echo $?; " +
      "exec sleep 1000";
    await containers.start(
      { ...started("own", ["sh", "-c", script]), user: "1000", groups: [1000] },
      never,
    );
    const output = new Output();
    await containers.follow("own", 0, output, never);
    await until("its output", () => Promise.resolve(output.text.split("\n").length > 6));
    t.is(output.text, "app\npasswd\nt\n0 1000 750\n1000 7 440\n1\n");
    // As for its own process: Kubernetes' fsGroup is such a group.
    const { text } = await exec(["id", "-G"], { container: "own", user: { user: "1000" } });
    t.is(text, "100 1000");
    await containers.remove("own", never);
    await nothingLeft(t);
  },
);

const calls = (...names: readonly string[]): string =>
  hexText(
    filterOf(
      {
        otherwise: answer.allow,
        unknown: answer.fail(38),
        rules: [{ names, answer: answer.fail(1) }],
      },
      "x86_64",
    ),
  );

test.serial(
  "containers of a pod share processes that ask for it, and end with their own",
  async (t) => {
    const processes = { of: "pod" } as const;
    for (const id of ["one", "two"]) {
      await create(id);
      // An orphan, which its namespace's leader takes in.
      const script = `(sleep 2${id === "one" ? 1 : 2}00 &) ; exec sleep 1${id === "one" ? 1 : 2}00`;
      await containers.start({ ...started(id, ["sh", "-c", script]), processes }, never);
    }
    const seen = (container: string) =>
      exec(["sh", "-c", "ps | grep -o 'sleep [12][12]00' | sort; cat /proc/1/cmdline"], {
        container,
      });
    const all = "sleep 1100\nsleep 1200\nsleep 2100\nsleep 2200\n/proc/self/exe\0--hold";
    await until("all four", async () =>
      (await seen("one")).text.startsWith("sleep 1100\nsleep 1200\nsleep 2100\nsleep 2200"),
    );
    t.is((await seen("one")).text.replace(/\0$/, ""), all);
    // Root of a container has fewer rights than the leader: neither an end nor a way to its files.
    const capabilities = [5, 21];
    const hostile = await runNew("hostile", "kill -9 1; kill -TERM 1; ls /proc/1/root/; id -u", {
      processes,
      capabilities,
    });
    t.regex(hostile.text, /denied/);
    t.regex(hostile.text, /\n0$/);
    const signalled = new Output();
    await containers.follow("two", 0, signalled, never);
    t.is(
      (
        await exec(
          ["sh", "-c", "kill -9 $(pidof -s sleep | head -1) || true; killall -q nothing; true"],
          { container: "one" },
        )
      ).code,
      0,
    );
    // With its first process all of a container's processes end, and of no other.
    await containers.remove("two", never);
    await until(
      "its end",
      async () => !(await seen("one").catch(() => ({ text: "" }))).text.includes("00\nsleep 22"),
    );
    t.is(await shell("ps | grep -c 'sleep 220[0]'"), "0");
    await containers.remove("one", never);
    t.is(await shell("ps | grep -c 'sleep .10[0]'"), "0");
    await nothingLeft(t);
  },
);

test.serial("a container shares the processes of another one that runs", async (t) => {
  await create("app");
  await containers.start(
    started("app", ["sh", "-c", "echo of-app > /mine; exec sleep 1300"]),
    never,
  );
  const processes = { of: "container", id: "app" } as const;
  // The first program has begun, and may still be the shell.
  const untilSleep = "until grep -q ^sleep /proc/1/cmdline || [ $((n += 1)) -gt 999 ]; do :; done";
  const { text } = await runNew(
    "debug",
    `n=0; ${untilSleep}; cat /proc/1/cmdline; echo; cat /mine; cat /proc/1/root/mine; (sleep 2300 &); exit 4`,
    { processes },
  );
  t.regex(text, /^sleep\0?1300/);
  t.regex(text, /\/mine.*No such file/, "files are its own");
  t.regex(text, /of-app/, "and the other's by its process");
  t.is(await shell("ps | grep -c 'sleep 230[0]'"), "0", "what it left ends with it");
  t.is((await exec(["true"], { container: "app" })).code, 0);
  await containers.remove("app", never);
  await create("late");
  const late = containers.start({ ...started("late", ["true"]), processes }, never);
  t.like(await t.throwsAsync(late), { code: "AGENT_REFUSED" });
  await containers.remove("late", never);
  await nothingLeft(t);
});

test.serial("system calls of a container and of what joins it are filtered", async (t) => {
  for (const noNewPrivileges of [false, true]) {
    await create("filtered");
    const script = "mkdir /a; touch /b; grep Seccomp: /proc/self/status; exec sleep 1000";
    await containers.start(
      {
        ...started("filtered", ["sh", "-c", `exec 2>&1; ${script}`]),
        filter: calls("mkdir", "mkdirat"),
        noNewPrivileges,
        user: "0",
      },
      never,
    );
    const output = new Output();
    await containers.follow("filtered", 0, output, never);
    await until("its output", () => Promise.resolve(output.text.includes("Seccomp")));
    t.regex(output.text, /mkdir.*not permitted\nSeccomp:\t2\n/);
    const joined = await exec(["sh", "-c", "mkdir /a 2>&1; ls /b"], { container: "filtered" });
    t.regex(joined.text, /not permitted\n\/b/);
    await containers.remove("filtered", never);
  }
  await nothingLeft(t);
});

test.serial(
  "the agent's program connects to the guest's loopback, and sets its kernel",
  async (t) => {
    await create("server");
    const script = "echo page > /tmp/x; exec busybox httpd -f -p 127.0.0.1:8081 -h /tmp";
    await containers.start(started("server", ["sh", "-c", script]), never);
    const connect = async (port: string, input: string) => {
      const session = await guest.exec(
        { args: ["/proc/self/exe", "--connect", port], env: {}, workdir: "", terminal: false },
        never,
      );
      await session.write(Buffer.from(input)).catch(() => {});
      await session.closeInput().catch(() => {});
      let text = "";
      for await (const event of session.events) {
        if (event.kind === "exit") return { text, code: event.code };
        text += Buffer.from(event.data).toString();
      }
      throw new Error("No exit");
    };
    const asking = "GET /x HTTP/1.0\r\n\r\n";
    await until("the server", async () => (await connect("8081", asking)).code === 0);
    const { text, code } = await connect("8081", asking);
    t.regex(text, /^connected\n[^]*200 OK[^]*page\n$/);
    t.is(code, 0);
    t.deepEqual(await connect("9", ""), { text: "connect: Connection refused\n", code: 1 });
    await containers.remove("server", never);
    const file = "/proc/sys/net/core/somaxconn";
    const set = (value: string) => exec(["/proc/self/exe", "--sysctl", file, value]);
    t.is((await set("123")).code, 0);
    t.is(await shell(`cat ${file}`), "123");
    t.deepEqual(await set("many"), { text: `${file}: Invalid argument`, code: 1 });
    await nothingLeft(t);
  },
);

test.serial("a container is limited, and its use is counted", async (t) => {
  const use = async (id: string) => (await containers.usage(never)).find((each) => each.id === id);
  await create("limited");
  const limits = { memoryBytes: 2 ** 25, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000, pids: 7 };
  const script = "head -c 300000 /dev/zero > /tmp/some; exec sleep 1000";
  await containers.start({ ...started("limited", ["sh", "-c", script]), limits }, never);
  const file = (name: string) => shell(`cat /run/podnet/groups/limited/${name}`);
  t.is(await file("cpu.max"), "50000 100000");
  t.is(await file("memory.max"), `${limits.memoryBytes}`);
  t.is(await file("pids.max"), "7");
  await until("what it wrote", async () => ((await use("limited"))?.memoryBytes ?? 0) > 300_000);
  t.true(((await use("limited"))?.cpuUs ?? 0) > 0);
  await containers.limit("limited", { cpuWeight: 7, memoryBytes: 0, killedAsOne: true }, never);
  t.is(await file("cpu.weight"), "7");
  t.is(await file("memory.max"), "max", "lifted");
  t.is(await file("memory.oom.group"), "1");
  t.is(await file("cpu.max"), "50000 100000", "as it was");
  // A program that joins it is limited, too.
  const { text } = await exec(["cat", "/proc/self/cgroup"], { container: "limited" });
  t.is(text, "0::/limited");
  await t.throwsAsync(containers.limit("limited", { cpuQuotaUs: 1 }, never), {
    message: /cpu.max/,
  });
  await containers.remove("limited", never);
  t.is(await shell("ls /run/podnet/groups | grep -c limited"), "0");
  await nothingLeft(t);
});

test.serial("a container that takes more than it may is killed, and says so", async (t) => {
  // Each turn doubles what the shell holds.
  const script = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done";
  const limits = { memoryBytes: 8 * 2 ** 20 };
  const { end } = await runNew("greedy", script, { limits });
  t.deepEqual(end, { signal: 9, outOfMemory: true });
  // A child is killed; its parent ends with its code, as a shell does.
  const child = await runNew("parent", `sh -c '${script}'; exit $?`, { limits });
  t.deepEqual(child.end, { code: 137, outOfMemory: true });
  const spared = await runNew("spared", `sh -c '${script}'; exit 5`, { limits });
  t.deepEqual(spared.end, { code: 5 }, "it ended by itself");
  const crowd = await runNew("crowd", "sleep 9 & sleep 9 & sleep 9 & echo more", {
    limits: { pids: 3 },
  });
  t.regex(crowd.text, /can't fork/);
  await nothingLeft(t);
});

test.serial("files are laid over the image's, and no link of it leads outside", async (t) => {
  const data = Buffer.from("given\n");
  const file = { id: "files", mode: 0o440, uid: 0, gid: 0, readOnly: true, data };
  await create("files");
  await containers.placeFile({ ...file, path: "/var/run/secrets/token" }, never);
  // bin/sh is a link to busybox: what the link leads to is laid over, in the container.
  await containers.placeFile({ ...file, path: "/etc/passwd", readOnly: false }, never);
  const script =
    "cat /var/run/secrets/token /etc/passwd; echo x > /var/run/secrets/token; echo $?; " +
    "echo more >> /etc/passwd; cat /etc/passwd";
  await containers.start(started("files", ["sh", "-c", script]), never);
  const output = new Output();
  await containers.follow("files", 0, output, never);
  await output.over;
  t.is(output.text, "given\ngiven\n1\ngiven\nmore\n");
  t.like(
    await t.throwsAsync(containers.placeFile({ ...file, path: "/late" }, never)),
    { code: "AGENT_REFUSED" },
    "it has started",
  );
  await containers.remove("files", never);
  await nothingLeft(t);
});

test.serial(
  "a root that is read-only, hidden paths, and those that cannot be written to",
  async (t) => {
    const { text } = await runNew(
      "shut",
      "echo x > /new; echo $?; echo x > /proc/sys/kernel/hostname; echo $?; cat /proc/kcore | head -c 1; ls /proc/bus; echo end",
      {
        readOnly: true,
        maskedPaths: ["/proc/kcore", "/proc/bus", "/proc/no-such"],
        readOnlyPaths: ["/proc/sys", "/proc/none"],
      },
    );
    t.deepEqual(
      text.split("\n").filter((line) => !line.startsWith("sh:")),
      ["1", "1", "end"],
    );
    t.is(await shell("cat /proc/sys/kernel/hostname"), "sandbox");
    await nothingLeft(t);
  },
);

test.serial("links of a hostile image lead nowhere but into itself", async (t) => {
  const path = busyboxImage(it.directory, "hostile", (root) => {
    rmSync(join(root, "etc"), { recursive: true });
    mkdirSync(join(root, "conf"));
    for (const [target, name] of [
      ["/../../../../conf", "etc"],
      ["../run/systemd/resolve/stub-resolv.conf", "conf/resolv.conf"],
      ["/../../init", "conf/hosts"],
      ["/../../../../srv", "dev"],
      ["../../../../../../srv", "sys"],
      ["/tmp", "proc"],
      ["/run/podnet", "var"],
    ] as const)
      symlinkSync(target, join(root, name));
  });
  const hostile = { ...disk, name: "hostile", path, slot: firstDiskSlot + 1 };
  using file = openHotDisk(hostile);
  await vm.plugDisk(hostile, file.fd, never);
  // Made with the first container. When a directory was last changed is not compared.
  const files = async (): Promise<string> =>
    (await shell("ls -lR /etc /run | grep -v total")).replaceAll(/\w{3} +\d+ \d\d:\d\d /g, "");
  const before = await files();
  await containers.create({ id: "hostile", disk: "hostile", addresses: [], waitMs: 5000 }, never);
  const placed = {
    id: "hostile",
    mode: 0o600,
    uid: 0,
    gid: 0,
    readOnly: true,
    data: Buffer.from("given\n"),
  };
  await containers.placeFile({ ...placed, path: "/var/secret/token" }, never);
  const look = "cat /var/secret/token /etc/resolv.conf; cat /tmp/1/comm; pwd";
  const spec = { ...started("hostile", ["sh", "-c", look]), workdir: "/var/work" };
  await containers.start(spec, never);
  const output = new Output();
  await containers.follow("hostile", 0, output, never);
  await output.over;
  t.is(output.text, "given\nnameserver 10.0.0.53\nsh\n/var/work\n");
  await containers.remove("hostile", never);
  t.is(await files(), before);
  await nothingLeft(t);
  t.is(await vm.unplugDisk(hostile.name, never), "unplugged");
});
