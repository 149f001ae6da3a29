import { constants, copyFileSync, existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { openRig, type Rig } from "./daemon-rig.ts";
import { isClean } from "./debian-rig.ts";

const image = resolve(import.meta.dirname, "../../build/image-cloud");
/**
 * Two boots of a Debian whose cloud-init is a large program in Python: two minutes under software
 * emulation, more on a loaded host.
 */
const longestMs = 3_600_000;

/**
 * What the guest prints of itself at each boot; at the first also once it has asked for its network
 * instead.
 */
const facts = `#!/bin/sh
exec >/dev/ttyS0 2>&1
echo >>/root/boots
report() {
  until grep -qs 2001:db8::53 /run/systemd/resolve/resolv.conf; do sleep 1; done
  echo "<$1"
  echo "hostname $(hostname) instance $(cat /var/lib/cloud/data/instance-id) boots $(wc -l </root/boots) once $(wc -l </root/once)"
  ip -o address show dev eth0
  ip route
  ip -6 route
  cat /sys/class/net/eth0/mtu /run/systemd/resolve/resolv.conf
  for router in 10.20.0.1 fd00:20::1; do ping -n -c 1 -W 20 $router; done
  echo "$1>"
}
report "seed$(wc -l </root/boots)"
[ $(wc -l </root/boots) = 1 ] || exit 0
# As if cloud-init had said nothing of the network: the image's own word for every eth*.
rm /etc/netplan/50-cloud-init.yaml
netplan generate
systemctl restart systemd-networkd
until ip -6 address show dev eth0 | grep -q fd00:20::2/128 && ip -6 route | grep -q "^default" && ip route | grep -q "^default.* dhcp"; do sleep 1; done
report dhcp
`;

/** Fewer of cloud-init's modules than there are: each takes its second. */
const userData = `#cloud-config
cloud_init_modules: [write-files, set_hostname, update_hostname, bootcmd]
write_files:
- path: /root/facts
  encoding: b64
  content: ${Buffer.from(facts).toString("base64")}
bootcmd:
- cloud-init-per instance once sh -c "echo >>/root/once"
- setsid sh /root/facts </dev/null >/dev/null 2>&1 &
`;

/** What a boot on a loaded host has no time for, or would fail for being late. */
const cmdline = [
  "root=/dev/vda1 ro systemd.default_timeout_start_sec=1200",
  ...["configfs", "dm_mod", "drm", "efi_pstore", "fuse", "loop"].map(
    (module) => `systemd.mask=modprobe@${module}.service`,
  ),
  // Of cloud-init's four parts those that come after the network.
  "systemd.mask=cloud-config.service",
  "systemd.mask=cloud-final.service",
  "systemd.mask=kmod-static-nodes.service",
  "systemd.mask=systemd-fsck-root.service",
  "systemd.mask=serial-getty@ttyS0.service",
].join(" ");

function imageFile(name: "vmlinux" | "initrd.img" | "disk.raw"): string {
  const file = join(image, name);
  if (existsSync(file)) return file;
  throw new Error(`There is no ${file}: run scripts/build-image --cloud`);
}

let rig: Rig;
test.serial.before(async () => {
  rig = await openRig(
    'factory = "cold"\nquarantine_s = 0\n[timeouts]\nstop_s = 5\npower_button_s = 600\n',
  );
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

async function consoleOf(idOrName: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const { data } of rig.client.pods.console({ idOrName, noFollow: true }))
    chunks.push(data);
  return Buffer.concat(chunks).toString();
}

/** What the guest has reported under this heading, once it has. */
async function reported(heading: string): Promise<string> {
  const between = new RegExp(`<${heading}\r?\n(.*)\n${heading}>`, "s");
  for (let attempt = 0; attempt < 3000; attempt++) {
    const [, text] = between.exec(await consoleOf("stock")) ?? [];
    if (text !== undefined) return text.replaceAll("\r", "");
    await delay(500);
  }
  throw new Error(`${heading} not in\n${await consoleOf("stock")}`);
}

/** Waits until an address answers: a guest that boots may leave the first questions unanswered. */
async function reached(address: string): Promise<void> {
  while (!(await rig.lab.host.reaches(address))) await delay(200);
}

function reports(t: ExecutionContext, text: string, wanted: readonly RegExp[]): void {
  for (const each of wanted) t.regex(text, each);
}

test.serial(
  "a cloud image is set up by its seed disk, and by DHCP and router advertisements, once for a pod; and powers off when asked",
  async (t) => {
    t.timeout(longestMs);
    const disk = join(rig.directory, "disk.raw");
    copyFileSync(imageFile("disk.raw"), disk, constants.COPYFILE_FICLONE);
    const { pods, networks } = rig.client;
    const subnets = [{ cidr: "10.20.0.0/24" }, { cidr: "fd00:20::/64" }];
    await networks.create({ spec: { name: "dual", subnets } });
    const { pod } = await pods.create({
      spec: {
        name: "stock",
        // DHCP could carry neither the second address nor the metric.
        interfaces: [
          {
            network: "dual",
            mtu: 1400,
            metric: 77,
            addresses: ["10.20.0.2", "10.20.0.9", "fd00:20::2"],
          },
        ],
        dns: { servers: ["192.0.2.53", "2001:db8::53"], search: ["example.org"] },
        resources: { memoryMib: 512, vcpu: 2 },
        boot: {
          kernel: imageFile("vmlinux"),
          initrd: imageFile("initrd.img"),
          cmdline,
          disks: [{ path: disk, format: "raw", writeThrough: true }],
          agent: "none",
          cloudInit: { userData },
        },
      },
    });
    // Its guest boots, and hears nothing of this.
    await rig.restart("kill");

    const who = (boots: number): RegExp =>
      new RegExp(`^hostname stock instance ${pod?.id} boots ${boots} once 1$`, "m");
    const seeded = [
      /eth0 +inet 10\.20\.0\.2\/24 /,
      /eth0 +inet 10\.20\.0\.9\/24 /,
      /eth0 +inet6 fd00:20::2\/64 /,
      /^default via 10\.20\.0\.1 dev eth0 proto static metric 77/m,
      /^default via fd00:20::1 dev eth0 proto static metric 77/m,
      /^1400$/m,
      /^nameserver 192\.0\.2\.53$/m,
      /^nameserver 2001:db8::53$/m,
      /^search example\.org/m,
      /(?:1 received.*){2}/s,
    ];
    const first = await reported("seed1");
    reports(t, first, [who(1), ...seeded]);
    t.notRegex(first, /proto dhcp|proto ra/);

    const asked = await reported("dhcp");
    reports(t, asked, [
      /eth0 +inet 10\.20\.0\.2\/24 .*dynamic/,
      /eth0 +inet6 fd00:20::2\/128 /,
      /^default via 10\.20\.0\.1 dev eth0 proto dhcp/m,
      /^default via fe80::\S+ dev eth0 proto ra/m,
      /^fd00:20::\/64 dev eth0 proto ra/m,
      /^1400$/m,
      /^nameserver 192\.0\.2\.53$/m,
      /^nameserver 2001:db8::53$/m,
      /^search .*example\.org/m,
      /(?:1 received.*){2}/s,
    ]);
    t.notRegex(asked, /10\.20\.0\.9/, "nothing is left of what the seed had said");
    t.notRegex(asked, /inet6 fd00:\S*ff:fe/, "it makes itself no address of the network");
    const { pod: seen } = await rig.client.pods.get({ idOrName: "stock" });
    for (const address of ["10.20.0.2/24", "fd00:20::2/64"])
      t.true(seen?.interfaces[0]?.observedAddresses.includes(address), address);
    for (const address of ["10.20.0.2", "fd00:20::2"]) await reached(address);

    t.false(isClean(disk), "mounted");
    const stopped = await rig.client.pods.stop({ idOrName: "stock" });
    t.is(stopped.pod?.state, PodState.STOPPED);
    t.true(isClean(disk), "it has powered off by itself");

    // The next boot is of the same instance. It is notified of its network again.
    await rig.client.pods.start({ idOrName: "stock" });
    reports(t, await reported("seed2"), [who(2), ...seeded]);
    for (const address of ["10.20.0.2", "10.20.0.9", "fd00:20::2"]) await reached(address);
    await rig.client.pods.delete({ idOrName: "stock", force: true });
    await rig.client.networks.delete({ name: "dual" });
    // Alongside the empty tables that ip6tables-nft makes for whoever asks it first.
    const tables = /^\+ ip6tables-nft (?:\*\w+|:\w+ ACCEPT|COMMIT)$/;
    t.deepEqual(
      (await rig.changes()).filter((line) => !tables.test(line)),
      [],
    );
  },
);
