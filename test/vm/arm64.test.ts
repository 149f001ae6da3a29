import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import test, { type ExecutionContext } from "ava";
import { InterfaceState, type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

/** A podnetd that starts machines of arm64, on a host of another architecture by emulation. */
const build = resolve(import.meta.dirname, "../../build");
const config = `factory = "template"
[network]
cidr6 = "fd00:123::/64"
[qemu]
arch = "arm64"
[timeouts]
create_s = 120
ready_s = 100
stop_s = 30
`;

let rig: Rig;
let before: string;
test.serial.before(async (t) => {
  t.timeout(60_000);
  rig = await openRig(config);
  for (const spec of [more("second", 2), more("third", 3)])
    await rig.client.networks.create({ spec });
  before = await rig.inventory();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const shell = async (script: string): Promise<string> =>
  (await execIn(rig.client, "arm", "sh", "-c", script)).output.trim();
const bare = (address: string | undefined): string => address?.replace(/\/.*/, "") ?? "";
const interfaceOf = (pod: Pod | undefined, name: string) =>
  pod?.interfaces.find(({ guestName }) => guestName === name);

/** A network of both families. */
const more = (name: string, n: number) => ({
  name,
  subnets: [{ cidr: `10.7.${n}.0/24` }, { cidr: `fd00:7:${n}::/64` }],
});

/** Reached from the host, and the host from it, by every address. */
async function reachedBothWays(t: ExecutionContext, pod: Pod | undefined, name: string) {
  const addresses = interfaceOf(pod, name)?.addresses.map(bare) ?? [];
  t.is(addresses.length, 2);
  for (const address of addresses) {
    await rig.lab.host.run("ping", "-c", "1", "-W", "10", address);
    // The first of its network is the bridge's.
    const gateway = address.replace(/[0-9a-f]+$/, "1");
    t.is(await shell(`ping -c1 -W10 ${gateway} >/dev/null && echo ok`), "ok", gateway);
  }
}

test("the agent for arm64 is one static executable", (t) => {
  const bytes = readFileSync(join(build, "agent-arm64/podnet-guest"));
  t.is(bytes.toString("latin1", 0, 4), "\u007fELF");
  // EM_AARCH64, and no program header of type PT_INTERP.
  t.is(bytes.readUInt16LE(18), 183);
  const headers = Number(bytes.readBigUInt64LE(32));
  const types = Array.from({ length: bytes.readUInt16LE(56) }, (_, i) =>
    bytes.readUInt32LE(headers + i * bytes.readUInt16LE(54)),
  );
  t.true(types.length > 0 && !types.includes(3));
});

test.serial("a pod of arm64, cloned: reached both ways, and programs run in it", async (t) => {
  t.timeout(240_000);
  const { pod } = await rig.client.pods.create({ spec: { name: "arm" } });
  t.like(pod?.vm, { arch: "arm64", accelerator: "tcg" });
  t.is(interfaceOf(pod, "eth0")?.state, InterfaceState.CONFIGURED);
  t.is(await shell("uname -m; readlink /proc/1/exe"), "aarch64\n/init");
  t.like(await execIn(rig.client, "arm", "sh", "-c", "echo no >&2; exit 7"), {
    output: "no\n",
    code: 7,
  });
  await reachedBothWays(t, pod, "eth0");
});

test.serial(
  "a NIC is plugged while it runs, found by the next podnetd, and unplugged",
  async (t) => {
    t.timeout(240_000);
    const added = await rig.client.pods.addInterface({ idOrName: "arm", interface: {} });
    t.is(interfaceOf(added.pod, "eth1")?.slot, 2);
    await reachedBothWays(t, added.pod, "eth1");
    await rig.restart("kill");
    const found = await rig.client.pods.get({ idOrName: "arm" });
    t.is(found.pod?.state, PodState.RUNNING);
    const third = await rig.client.pods.addInterface({ idOrName: "arm", interface: {} });
    t.is(interfaceOf(third.pod, "eth2")?.slot, 3);
    const { pod } = await rig.client.pods.removeInterface({ idOrName: "arm", guestName: "eth1" });
    t.deepEqual(
      pod?.interfaces.map(({ guestName }) => guestName),
      ["eth0", "eth2"],
    );
    t.is(await shell("ls /sys/class/net"), "eth0\neth2\nlo");
    await reachedBothWays(t, pod, "eth2");
  },
);

test.serial(
  "it powers off, boots again with its addresses, and is gone with all it had",
  async (t) => {
    t.timeout(240_000);
    const had = addressOf((await rig.client.pods.get({ idOrName: "arm" })).pod);
    const stopped = await rig.client.pods.stop({ idOrName: "arm" });
    t.is(stopped.pod?.state, PodState.STOPPED);
    const { pod } = await rig.client.pods.start({ idOrName: "arm" });
    t.is(addressOf(pod), had);
    await reachedBothWays(t, pod, "eth0");
    await rig.client.pods.delete({ idOrName: "arm" });
    t.deepEqual(await rig.changes(before), []);
  },
);

test.serial("what a machine of arm64 cannot boot is refused before anything is made", async (t) => {
  const refused = async (boot: object) => {
    const error = await t.throwsAsync(rig.client.pods.create({ spec: { boot } }));
    return isPodnetError(error) ? [error.code, error.field, error.message] : [];
  };
  const kernel = join(build, "image/vmlinux");
  t.deepEqual(await refused({ kernel, initrd: "none" }), [
    "IMAGE_UNREADABLE",
    "boot.kernel",
    `The kernel "${kernel}" cannot be read: it is a kernel for x86_64, and machines are of arm64`,
  ]);
  t.deepEqual(await refused({ kernel: "none", disks: [{ path: kernel }] }), [
    "UNSUPPORTED",
    "boot.kernel",
    "Machines of arm64 boot no disk by themselves",
  ]);
  t.deepEqual(await rig.changes(before), []);
});
