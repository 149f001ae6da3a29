import test from "ava";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PodSpecSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { Rig } from "../vm/daemon-rig.ts";
import { openStandInRig } from "../vm/standin-rig.ts";

// What a shell, an option parser, iptables-restore or QEMU could take for more than a name, in
// every text of a pod.

type Spec = MessageInitShape<typeof PodSpecSchema>;

let rig: Rig;
test.serial.before(async () => {
  rig = await openStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** None is what an id may begin with by chance: ids are of small letters and digits. */
const words = [
  "-X",
  "--jump",
  "-Z",
  "$(reboot)",
  "`reboot`",
  "a;reboot",
  "a\n-A INPUT -j ACCEPT",
  "a\nCOMMIT\n*nat",
  "a\r\nb",
  'a"b',
  "a'b",
  "a\\b",
  "a b",
  "a,b=c",
  "a\u0000b",
  "a\u001b[2Jb",
  "a\u202eb",
  "/tmp/a,file=/etc/shadow",
  '/tmp/a"\n-A INPUT',
  "-netdev",
] as const;

const fields: Readonly<Record<string, (word: string) => Spec>> = {
  name: (name) => ({ name }),
  hostname: (hostname) => ({ hostname }),
  "label key": (word) => ({ labels: { [word]: "x" } }),
  "label value": (word) => ({ labels: { x: word } }),
  kernel: (kernel) => ({ boot: { kernel } }),
  initrd: (initrd) => ({ boot: { initrd } }),
  cmdline: (cmdline) => ({ boot: { cmdline } }),
  "disk path": (path) => ({ boot: { disks: [{ path }] } }),
  "disk format": (format) => ({ boot: { disks: [{ path: "/tmp/x", format }] } }),
  network: (network) => ({ interfaces: [{ network }] }),
  address: (address) => ({ interfaces: [{ address }] }),
  mac: (mac) => ({ interfaces: [{ mac }] }),
  gateway: (gateway) => ({ interfaces: [{ gateway }] }),
  "guest name": (guestName) => ({ interfaces: [{ guestName }] }),
  "dns server": (word) => ({ dns: { servers: [word] } }),
  "dns search": (word) => ({ dns: { search: [word] } }),
  "dns option": (word) => ({ dns: { options: [word] } }),
  "route destination": (destination) => ({ routes: [{ destination }] }),
  "route interface": (word) => ({ routes: [{ destination: "10.0.0.0/8", interface: word }] }),
};

/**
 * Fields whose text goes to the guest, or is kept with the pod, as it is: one word, or none, of
 * what the host runs.
 */
const carried: readonly string[] = ["label value", "cmdline", "dns option"];

for (const [field, specOf] of Object.entries(fields)) {
  test.serial(`names that could be more than names are refused or inert: ${field}`, async (t) => {
    let accepted = 0;
    for (const word of words) {
      try {
        const { plan } = await rig.client.pods.create({ spec: specOf(word), planOnly: true });
        accepted++;
        const said = JSON.stringify(word);
        t.true(carried.includes(field), `${said} was accepted`);
        for (const { step, lines } of plan?.sections ?? []) {
          for (const line of lines) {
            t.notRegex(line, /[\n\r\u0000]/, `${step} of ${said}`);
            // Rules and links never hold it; the machine's arguments hold a command line as one
            // quoted word.
            if (/^(?:net|tap|port|rule|nic)/.test(step))
              t.false(line.includes(word), `${step}: ${line}`);
          }
        }
      } catch (thrown) {
        if (!isPodnetError(thrown)) throw thrown;
        t.not(thrown.code, "INTERNAL", JSON.stringify(word));
        t.truthy(thrown.hint, `${thrown.code} of ${JSON.stringify(word)} has no hint`);
      }
    }
    t.log(`${words.length - accepted} refused, ${accepted} inert`);
  });
}
