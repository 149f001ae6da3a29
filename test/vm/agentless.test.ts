import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, type MessageInitShape, toJson } from "@bufbuild/protobuf";
import test from "ava";
import { InterfaceState, type Pod, PodSchema, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { BootSchema, type PodSpecSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { cpioArchive } from "../../guest-init/image/cpio.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

const scratch = mkdtempSync(join(tmpdir(), "agentless-"));
const image = resolve(import.meta.dirname, "../../build/image");

/**
 * What a guest's DHCP client does with an answer, printed on the console: busybox's own script's
 * job.
 */
const onLease = `#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip link set $interface mtu $mtu
ip address replace $ip/$mask dev $interface
[ -z "$router" ] || ip route replace default via $router
echo "LEASE $interface $ip/$mask router=$router dns=$dns domain=$domain search=$search mtu=$mtu host=$hostname routes=$staticroutes lease=$lease server=$serverid" >/dev/console
`;

/** A stock system's first program, with no agent: NICs are found at boot and later, and ask. */
const init = (script: string): string => `#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
cd /lib/modules
for module in $(cat console.list network.list); do insmod $module.ko 2>/dev/null || insmod $module; done
${script}
while :; do sleep 100; done
`;

/** Each NIC asks as soon as it is there, with the kernel's own IPv6. */
const asks = `
echo "SEED $(grep -a instance-id /dev/vda)"
(while :; do sleep 4; killall -USR1 udhcpc; done) &
echo 1 >/proc/sys/net/ipv6/conf/default/accept_ra
n=0
while [ $n -lt 4000 ]; do
  for nic in /sys/class/net/eth*; do
    [ -e $nic ] || continue
    nic=\${nic##*/}
    [ ! -e /run/$nic ] || continue
    echo >/run/$nic
    ip link set $nic up
    udhcpc -f -i $nic -s /lease -O staticroutes -O mtu -O search -t 20 -T 1 >/dev/null 2>&1 &
  done
  n=$((n + 1))
  sleep 0.1
done &
`;

function guest(name: string, script: string): { readonly initrd: string; readonly agent: "none" } {
  const more = cpioArchive([
    { kind: "file", path: "init", mode: 0o755, data: Buffer.from(init(script)) },
    { kind: "file", path: "lease", mode: 0o755, data: Buffer.from(onLease) },
  ]);
  const initrd = join(scratch, name);
  writeFileSync(initrd, Buffer.concat([readFileSync(join(image, "initramfs.gz")), gzipSync(more)]));
  return { initrd, agent: "none" };
}

let rig: Rig;
test.before(async () => {
  rig = await openRig("quarantine_s = 0\n[timeouts]\npower_button_s = 2\n");
});
test.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true });
});

/** A pod's console so far. */
async function consoleOf(idOrName: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const { data } of rig.client.pods.console({ idOrName, noFollow: true }))
    chunks.push(data);
  return Buffer.concat(chunks).toString();
}

/** The pod, once every interface of it has been seen with its addresses. */
async function configured(idOrName: string): Promise<Pod> {
  for (let attempt = 0; ; attempt++) {
    const { pod } = await rig.client.pods.get({ idOrName });
    if (pod?.interfaces.every(({ state }) => state === InterfaceState.CONFIGURED) === true)
      return pod;
    if (attempt === 160) throw new Error(`Not configured: ${await consoleOf(idOrName)}`);
    await delay(250);
  }
}

/** Waits until the console says it so often. */
async function says(idOrName: string, what: RegExp, times = 1): Promise<readonly string[]> {
  for (let attempt = 0; ; attempt++) {
    const found = (await consoleOf(idOrName)).match(what) ?? [];
    if (found.length >= times) return found;
    if (attempt === 120) throw new Error(`Not ${what}: ${await consoleOf(idOrName)}`);
    await delay(250);
  }
}

const code = async (call: Promise<unknown>): Promise<string> => {
  try {
    await call;
    return "OK";
  } catch (thrown) {
    return isPodnetError(thrown) ? thrown.code : String(thrown);
  }
};

/** The links of the host at which packet sockets listen, as the kernel lists them. */
async function listeningAt({ lab: { host } }: Rig): Promise<string[]> {
  const links = JSON.parse(await host.run("ip", "-j", "link", "show")) as readonly {
    readonly ifindex: number;
    readonly ifname: string;
  }[];
  const [, ...sockets] = (await host.run("cat", "/proc/net/packet")).trim().split("\n");
  // sk RefCnt Type Proto Iface R Rmem User Inode
  const indexes = sockets.map((line) => Number(line.trim().split(/ +/)[4]));
  return indexes.map((index) => links.find(({ ifindex }) => ifindex === index)?.ifname ?? "any");
}

test.serial(
  "a stock guest gets its network by asking, keeps it over a restart of podnetd, and takes more",
  async (t) => {
    const { pods } = rig.client;
    const { pod } = await pods.create({
      spec: {
        name: "stock",
        interfaces: [{ mtu: 1400 }],
        dns: { servers: ["192.0.2.53"], search: ["example.org"] },
        boot: {
          ...guest("stock.gz", asks),
          cloudInit: { userData: "#cloud-config\n# a secret\n" },
        },
      },
    });
    t.is(pod?.state, PodState.RUNNING);
    t.is(pod?.guest?.kind, "none");
    t.deepEqual(
      pod?.spans.map(({ step }) => step).filter((step) => /^(?:nic|guest|vm)/.test(step)),
      ["vm.start", "nic.plug", "guest.answer", "vm.go"],
    );
    const is = await configured("stock");
    const address = addressOf(is);
    t.deepEqual(is.interfaces[0]?.observedAddresses, [`${address}/24`]);
    const [lease = ""] = await says("stock", /LEASE eth0 .*/g);
    for (const part of [`${address}/24 `, "router=192.168.123.1 ", "dns=192.0.2.53 ", "mtu=1400 "])
      t.true(lease.includes(part), `${part} in ${lease}`);
    t.regex(lease, /host=stock .*server=192\.168\.123\.1/);
    t.regex(await rig.lab.host.run("ping", "-n", "-c", "1", "-W", "5", address), /1 received/);
    const port = is.interfaces[0]?.tap ?? "";
    t.deepEqual(await listeningAt(rig), [port], "at its own port, and not where others ask, too");
    const [seed = ""] = await says("stock", /SEED .*/g);
    t.regex(seed, new RegExp(`"instance-id":"${is.id}","local-hostname":"stock"`));

    t.is(await code(execIn(rig.client, "stock", "true")), "UNSUPPORTED");
    t.is(
      await code(pods.updateInterface({ idOrName: "stock", guestName: "eth0", mtu: 1300 })),
      "UNSUPPORTED",
    );
    const shown = JSON.stringify(toJson(PodSchema, is));
    t.false(shown.includes("a secret"));
    t.regex(shown, /\(25 bytes, not shown\)/);

    await rig.restart("kill");
    const before = (await consoleOf("stock")).match(/LEASE eth0/g)?.length ?? 0;
    await says("stock", /LEASE eth0/g, before + 1);
    t.is((await configured("stock")).interfaces.length, 1);
    await rig.client.pods.addInterface({ idOrName: "stock", interface: {} });
    const more = await configured("stock");
    t.is(more.interfaces.length, 2);
    await rig.client.pods.removeInterface({ idOrName: "stock", guestName: "eth1" });
    t.is((await rig.client.pods.get({ idOrName: "stock" })).pod?.interfaces.length, 1);

    await rig.client.pods.stop({ idOrName: "stock" });
    await rig.client.pods.delete({ idOrName: "stock" });
    t.deepEqual(await rig.changes(), []);
  },
);

type Refused = MessageInitShape<typeof PodSpecSchema>;

test.serial(
  "what cannot be sent to a guest is refused, with the field; a seed disk can say more",
  async (t) => {
    const plan = (spec: Refused, seed = false): Promise<string> => {
      const boot = create(BootSchema, { agent: "none", ...(seed ? { cloudInit: {} } : {}) });
      return code(rig.client.pods.create({ spec: { ...spec, boot }, planOnly: true }));
    };
    t.is(await plan({}), "OK");
    const bySeed: readonly Refused[] = [
      { interfaces: [{ guestName: "lan0" }] },
      { interfaces: [{ metric: 5 }] },
      { interfaces: [{ addresses: ["192.168.123.9", "192.168.123.10"] }] },
      { routes: [{ destination: "10.0.0.0/8", gateway: "192.168.123.1", metric: 5 }] },
    ];
    for (const spec of bySeed) {
      t.is(await plan(spec), "UNSUPPORTED", JSON.stringify(spec));
      t.is(await plan(spec, true), "OK", JSON.stringify(spec));
    }
    const never: readonly Refused[] = [
      { interfaces: [{}, { loopback: true, address: "10.1.1.1/32" }] },
      { dns: { options: ["ndots:2"] } },
    ];
    for (const spec of never) t.is(await plan(spec, true), "UNSUPPORTED", JSON.stringify(spec));
    const { plan: reported } = await rig.client.pods.create({
      spec: { boot: { agent: "none" } },
      planOnly: true,
    });
    const steps = reported?.sections.map(({ step }) => step) ?? [];
    t.true(steps.includes("guest.answer"));
    t.false(steps.includes("guest.configure"));
    t.regex(
      reported?.sections.at(-1)?.lines[0] ?? "",
      /^DHCPv4 to \S+ by \S+: 192\.168\.123\.\d+\/24 /,
    );
  },
);
