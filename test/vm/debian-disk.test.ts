import test from "ava";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";
import { bootMs, debianFile, eventually, timeouts } from "./debian-rig.ts";

let rig: Rig;
test.serial.before(async (t) => {
  t.timeout(bootMs);
  rig = await openRig(`factory = "cold"\n${timeouts}`);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial(
  "a Debian disk boots by its own bootloader, and again when the guest restarts",
  async (t) => {
    t.timeout(2 * bootMs);
    const boot = {
      kernel: "none",
      initrd: "none",
      disks: [{ path: debianFile("disk.raw"), format: "raw" }],
    };
    await rig.client.pods.create({ spec: { name: "deb", boot, resources: { memoryMib: 512 } } });
    const { output } = await execIn(rig.client, "deb", "cat", "/proc/cmdline");
    t.regex(output, /^BOOT_IMAGE=\/vmlinuz root=\/dev\/vda1/);
    await rig.lab.host.ping("192.168.123.2");
    await execIn(rig.client, "deb", "touch", "/run/before", "/root/kept");
    await execIn(rig.client, "deb", "systemctl", "reboot").catch(() => undefined);
    // What was in memory is gone, what was on the disk is there, and the network is as before.
    await eventually(
      rig,
      "test ! -e /run/before && ls /root/kept && ip -br address show dev eth0 to 192.168.123.2",
    );
    await rig.lab.host.ping("192.168.123.2");
    t.true((await rig.client.pods.verify({ idOrName: "deb" })).ok);
  },
);
