import { closeSync, existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import test from "ava";
import { parseIfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import { openKeptTap, openTap } from "../../linux/tun.ts";
import { ownNetns } from "../lab/netns.ts";

// Test files share the sandbox's /run, hence a name of this process's own.
const otherNetns = `other-${process.pid}`;

test.before(() => ownNetns());

interface TunDetails {
  readonly ifname: string;
  readonly linkinfo?: { readonly info_kind: string; readonly info_data: Record<string, unknown> };
}

async function links(): Promise<readonly TunDetails[]> {
  const { stdout } = await run(["ip", "-j", "-d", "link", "show"]);
  return JSON.parse(stdout) as TunDetails[];
}

test.serial("a tap is single-queue, with virtio header, owned and not persistent", async (t) => {
  const tap = openTap(parseIfName("tap0"), { ownerUid: 4711 });
  const seen = (await links()).find((link) => link.ifname === "tap0");
  t.is(seen?.linkinfo?.info_kind, "tun");
  t.like(seen?.linkinfo?.info_data, {
    type: "tap",
    pi: false,
    vnet_hdr: true,
    multi_queue: false,
    persist: false,
    user: 4711,
  });
  await tap.close();
  t.deepEqual(
    (await links()).map((link) => link.ifname),
    ["lo"],
    "the device goes with its last descriptor",
  );
  await tap.close();
});

test.serial(
  "a tap of several queues goes with its last descriptor, and is refused whole",
  async (t) => {
    const tap = openTap(parseIfName("tap0"), { queues: 3 });
    t.is(new Set(tap.fds).size, 3);
    const seen = (await links()).find((link) => link.ifname === "tap0");
    t.like(seen?.linkinfo?.info_data, { multi_queue: true, persist: false });
    const before = readdirSync("/proc/self/fd").length;
    t.throws(() => openTap(tap.name, { queues: 2 }), { code: "SYSCALL_FAILED" });
    t.throws(() => openTap(parseIfName("tap1"), { queues: 10_000 }), { code: "SYSCALL_FAILED" });
    t.is(readdirSync("/proc/self/fd").length, before, "what was opened of it is closed");
    await tap.close();
    t.deepEqual(
      (await links()).map((link) => link.ifname),
      ["lo"],
    );
  },
);

test.serial("a name in use is refused, whoever holds it", async (t) => {
  await using tap = openTap(parseIfName("tap0"));
  t.like(
    t.throws(() => openTap(tap.name), { code: "SYSCALL_FAILED" }),
    {
      details: { errno: "EBUSY", syscall: "TUNSETIFF" },
    },
  );
  await run(["ip", "link", "add", "name", "br9", "type", "bridge"]);
  t.like(
    t.throws(() => openTap(parseIfName("br9"))),
    { details: { syscall: "TUNSETIFF" } },
  );
  // No process holds this one, and any could attach to it.
  await run(["ip", "tuntap", "add", "dev", "tap9", "mode", "tap", "vnet_hdr"]);
  t.like(
    t.throws(() => openTap(parseIfName("tap9"))),
    { details: { errno: "EBUSY" } },
  );
  await run(["ip", "link", "del", "dev", "tap9"]);
  await run(["ip", "link", "del", "dev", "br9"]);
  t.is((await links()).length, 2);
});

test.serial("fifty taps open and close", async (t) => {
  const taps = Array.from({ length: 50 }, (_, i) => openTap(parseIfName(`tap${i}`)));
  t.is((await links()).length, 51);
  await Promise.all(taps.map((tap) => tap.close()));
  t.is((await links()).length, 1);
});

test.serial("a tap is not inherited by commands", async (t) => {
  await using tap = openTap(parseIfName("tap0"));
  const { stdout } = await run([
    "sh",
    "-c",
    "for f in /proc/self/fd/*; do readlink $f; done; true",
  ]);
  t.true(readlinkSync(`/proc/self/fd/${tap.fd}`).includes("tun"));
  t.false(stdout.includes("tun"));
});

test.serial("withNetns works in another namespace and comes back", async (t) => {
  await run(["ip", "netns", "add", otherNetns]);
  t.teardown(() => run(["ip", "netns", "del", otherNetns]));
  const home = readlinkSync("/proc/thread-self/ns/net");
  const [there, tap] = withNetns(`/run/netns/${otherNetns}`, () => [
    readlinkSync("/proc/thread-self/ns/net"),
    openTap(parseIfName("tap7")),
  ]);
  t.not(there, home);
  t.is(readlinkSync("/proc/thread-self/ns/net"), home);
  t.false((await links()).some((link) => link.ifname === "tap7"));
  const { stdout } = await run(["ip", "-n", otherNetns, "-j", "link", "show", "dev", "tap7"]);
  t.is((JSON.parse(stdout) as TunDetails[]).length, 1);
  await tap.close();
});

test.serial("withNetns comes back after an error", async (t) => {
  const home = readlinkSync("/proc/thread-self/ns/net");
  t.throws(
    () =>
      withNetns("/proc/1/ns/net", () => {
        throw new Error("inside");
      }),
    { message: "inside" },
  );
  t.is(readlinkSync("/proc/thread-self/ns/net"), home);
  t.throws(() => withNetns("/run/netns/missing", () => 1), { message: /missing.*ENOENT/ });
  t.throws(() => withNetns("/dev/null", () => 1), { code: "SYSCALL_FAILED", message: /EINVAL/ });
  t.is(readlinkSync("/proc/thread-self/ns/net"), home);
});

test.serial("withNetns leaves no thread behind, even with a cold thread pool", async (t) => {
  const script = `
    import { readdirSync, readlinkSync, stat } from "node:fs";
    import { withNetns } from "${import.meta.dirname}/../../linux/namespaces/netns.ts";
    withNetns("/proc/1/ns/net", () => stat("/", () => {}));
    const seen = readdirSync("/proc/self/task").map((id) => readlinkSync("/proc/self/task/" + id + "/ns/net"));
    console.log(JSON.stringify({ threads: seen.length, namespaces: new Set(seen).size }));
  `;
  const { stdout } = await run([process.execPath, "--input-type=module", "-e", script]);
  const { threads, namespaces } = JSON.parse(stdout) as { threads: number; namespaces: number };
  t.is(namespaces, 1);
  t.true(threads >= 9, "V8's threads, and the pool's four");
});

test.serial("sysctls are those of this namespace", (t) => {
  writeSysctl("net.ipv4.ip_forward", "1");
  t.is(readSysctl("net.ipv4.ip_forward"), "1");
  writeSysctl("net/ipv4/ip_forward", "0");
  t.is(readSysctl("net/ipv4/ip_forward"), "0");
  t.is(readFileSync("/proc/sys/net/ipv4/ip_forward", "latin1"), "0\n");
});

test.serial("a sysctl that is missing, refused or misspelt says so", (t) => {
  const missing = t.throws(() => readSysctl("net.ipv4.no_such_key"), { code: "SYSCALL_FAILED" });
  t.like(missing, { details: { errno: "ENOENT" } });
  t.throws(() => writeSysctl("net.ipv4.no_such_key", "1"), { message: /ENOENT/ });
  t.throws(() => writeSysctl("net.ipv4.ip_forward", "many"), { message: /"many".*EINVAL/ });
  for (const key of [
    "",
    "net",
    "../etc/passwd",
    "net/../../etc/passwd",
    "/etc/passwd",
    "net//ipv4",
  ])
    t.throws(() => readSysctl(key), { code: "INVALID_ARGUMENT" }, key);
  t.false(existsSync("/proc/sys/net/ipv4/no_such_key"));
});

test.serial("descriptors do not pile up", async (t) => {
  const count = (): number => readdirSync("/proc/self/fd").length;
  const before = count();
  for (let i = 0; i < 20; i++) {
    await openTap(parseIfName("tap0")).close();
    withNetns("/proc/self/ns/net", () => 0);
    t.throws(() => openTap(parseIfName("lo")));
  }
  t.is(count(), before);
  t.throws(() => closeSync(-1));
});

test.serial("a foreign tap is used where it is and outlives its use", async (t) => {
  await run(["ip", "link", "add", "name", "br8", "type", "bridge"]);
  await run(["ip", "tuntap", "add", "dev", "kept0", "mode", "tap"]);
  await run(["ip", "link", "set", "dev", "kept0", "master", "br8", "alias", "mine", "up"]);
  const look = async (): Promise<unknown> => {
    const found = (await links()).find(({ ifname }) => ifname === "kept0") as unknown as Record<
      string,
      unknown
    >;
    return [found["master"], found["ifalias"], found["ifindex"], found["group"]];
  };
  const before = await look();
  for (let again = 0; again < 2; again++) {
    await using tap = openKeptTap(parseIfName("kept0"));
    t.is(tap.name, parseIfName("kept0"));
    t.deepEqual(await look(), before);
    t.like(
      t.throws(() => openKeptTap(parseIfName("kept0")), { code: "SYSCALL_FAILED" }),
      { details: { errno: "EBUSY" } },
    );
  }
  t.deepEqual(await look(), before, "it is still there");
  await run(["ip", "link", "delete", "kept0"]);
  t.throws(() => openKeptTap(parseIfName("kept0")), { code: "TAP_CONFLICT" });
  t.false(
    (await links()).some(({ ifname }) => ifname === "kept0"),
    "what the kernel made for the question is gone",
  );
  t.throws(() => openKeptTap(parseIfName("br8")), { code: "SYSCALL_FAILED" });
  await run(["ip", "link", "delete", "br8"]);
});
