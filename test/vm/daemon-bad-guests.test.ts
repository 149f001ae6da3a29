import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import test from "ava";
import { cpioArchive } from "../../guest-init/image/cpio.ts";
import { writeTinyGuest } from "../peers/tiny-guest.ts";
import { refuses, type Refusal, type Spec } from "./daemon-refusal.ts";
import { openRig, type Rig } from "./daemon-rig.ts";
import { debianGuest } from "./hypervisor-rig.ts";

let rig: Rig;
const scratch = mkdtempSync(join(tmpdir(), "podnet-guests-"));
const deaf = await writeTinyGuest(scratch, "deaf");
const chatty = await writeTinyGuest(scratch, "chatty");
const quitting = await writeTinyGuest(scratch, "quitting");
const rebooting = await writeTinyGuest(scratch, "rebooting");

test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n[timeouts]\nready_s = 2\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  rmSync(scratch, { recursive: true, force: true });
});

/**
 * Nothing; but a kernel may find its timer late where the host is busy (software emulation,
 * Debian's 6.1).
 */
const silent = /^(?:\[ *[\d.]+\] \.\.MP-BIOS bug:[^\n]*)?$/;

/**
 * Whether all of them boot. A short run leaves out a second panic, and those that differ in what
 * they write to the channel alone: it meets these in test/unit/guest-init/channel/session*.test.ts,
 * and what podnetd does then in test/vm/standin-bad.test.ts.
 */
const full = process.env["PODNET_TEST_FULL"] === "1";

/**
 * Creates a pod whose guest does not do its part, and looks at what the console in the error shows
 * of it.
 */
const fails = (what: string, refusal: Refusal, boot: Spec["boot"], console = silent): void => {
  test.serial(`${what} is ${refusal.code}, and undone`, async (t) => {
    const error = await refuses(t, rig, boot === undefined ? {} : { boot }, refusal);
    t.regex(String(error?.details["console"] ?? ""), console);
  });
};

/** One that only a complete run boots. */
const failsToo: typeof fails = full ? fails : () => {};

const booting = { step: "guest.ready" } as const;

fails("a guest without an agent", { code: "AGENT_TIMEOUT", at: booting }, deaf);
fails(
  "a guest that only writes to its console",
  { code: "AGENT_TIMEOUT", at: booting },
  chatty,
  /^x{600}$/,
);
fails(
  "a guest that powers off at once",
  { code: "QEMU_EXITED", at: booting, message: /exit code 0/ },
  quitting,
);
fails("a guest that restarts at once", { code: "BOOT_FAILED", at: booting }, rebooting);

test.serial("from here on guests get the time that a whole operating system takes", async (t) => {
  await t.notThrowsAsync(rig.restart("stop", { PODNET_TIMEOUTS_READY_S: "20" }));
});

// Debian's kernel with nothing it could run: it panics, and restarts a second later.
writeFileSync(join(scratch, "empty.cpio"), Buffer.alloc(512));
fails(
  "a guest that panics",
  { code: "BOOT_FAILED", at: booting },
  { initrd: join(scratch, "empty.cpio") },
  /Kernel panic/,
);

const own = readFileSync(debianGuest.initrd);
// The kernel unpacks a cut archive as far as it goes: with luck to an error, here to a panic for
// want of /init.
writeFileSync(join(scratch, "cut.gz"), own.subarray(0, own.length / 8));
failsToo(
  "a guest whose initramfs is cut short",
  { code: "BOOT_FAILED", at: booting },
  { initrd: join(scratch, "cut.gz") },
  /Kernel panic/,
);

/**
 * podnet's own image with another first program: a script that has the channel open as descriptor
 * 3.
 */
function hostile(name: string, script: string): Spec["boot"] {
  const init = `#!/bin/sh
mount -t devtmpfs dev /dev
mount -t sysfs sys /sys
cd /lib/modules
for module in $(cat console.list); do insmod $module; done
until [ -e /dev/vport*p1 ]; do sleep 0.05; done
exec 3<>$(echo /dev/vport*p1)
${script}
sleep 1000
`;
  const more = cpioArchive([{ kind: "file", path: "init", mode: 0o755, data: Buffer.from(init) }]);
  const initrd = join(scratch, name);
  // The kernel unpacks archives one after the other; a later file replaces an earlier one.
  writeFileSync(initrd, Buffer.concat([own, gzipSync(more)]));
  return { initrd };
}

/** Writes a control frame: code, and how many bytes header and `text` (of echo -e) are together. */
const say = (code: number, bytes: number, text = ""): string =>
  `printf '\\000\\000\\000\\${code.toString(8)}\\000\\000\\000\\${bytes.toString(8)}${text}' >&3`;
const [ready, ack] = [8, 9];
const version = say(ack, 12, "\\000\\000\\020\\224");
/**
 * Takes one whole command off the channel; every read is answered with the NEXT hyperstart says.
 */
const take = `n=$(dd bs=1 skip=4 count=4 <&3 2>/dev/null | od -An -tu1 | awk '{ print $3 * 256 + $4 - 8 }')
[ $n = 0 ] || dd bs=1 count=$n of=/dev/null <&3 2>/dev/null`;

const protocol = { code: "AGENT_PROTOCOL", at: booting } as const;
fails("a guest that sends noise", protocol, hostile("noise.gz", "cat /dev/urandom >&3"));
failsToo(
  "a guest with a frame of 4 GiB",
  protocol,
  hostile("huge.gz", "printf '\\000\\000\\000\\010\\377\\377\\377\\377' >&3"),
);
failsToo(
  "a guest that says READY and no more",
  { code: "AGENT_TIMEOUT", at: booting },
  hostile("mute.gz", say(ready, 8)),
);
failsToo(
  "a guest that answers GETVERSION with words",
  protocol,
  hostile("words.gz", [say(ready, 8), take, say(ack, 13, "hello")].join("\n")),
);
failsToo(
  "a guest of another API",
  { code: "UNSUPPORTED", at: booting },
  hostile("other.gz", [say(ready, 8), take, say(ack, 12, "\\000\\000\\000\\001")].join("\n")),
);
fails(
  "a guest that greets and refuses to be configured",
  { code: "AGENT_REFUSED", at: { step: "guest.configure" } },
  hostile(
    "refusing.gz",
    [say(ready, 8), take, version, take, say(10, 8), take, say(10, 8)].join("\n"),
  ),
);
