import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { podIdFromBytes } from "../../core/names.ts";
import type { VmPlan } from "../../hypervisor/driver.ts";
import { findProgram, run } from "../../linux/processes/command.ts";
import { ownNetns } from "../lab/netns.ts";
import { standInQemu } from "../lab/standin.ts";
import { type tinyGuests, writeTinyGuest } from "../peers/tiny-guest.ts";
import { type BareMachine, converse, startBare } from "./standin-dialogue.ts";
import {
  deafScript,
  disksScript,
  type Line,
  monitorScript,
  ownersScript,
} from "./standin-script.ts";

const realQemu = findProgram("qemu-system-x86_64") ?? "qemu-system-x86_64";

test.before(async () => await ownNetns());

async function machine(
  t: ExecutionContext,
  qemu: string,
  guest: keyof typeof tinyGuests,
  cmdline: string,
  more: readonly string[] = [],
): Promise<BareMachine> {
  const directory = mkdtempSync(join(tmpdir(), "podnet-standin-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const plan: VmPlan = {
    podId: podIdFromBytes(crypto.getRandomValues(new Uint8Array(12))),
    vcpu: 1,
    memoryMib: 128,
    ...(await writeTinyGuest(directory, guest)),
    cmdline,
    disks: [],
    runDir: join(directory, "run"),
  };
  return await startBare(qemu, plan, more);
}

/** What a machine says to a script, how it ends, and what files it leaves. */
async function record(bare: BareMachine, script: readonly Line[]): Promise<readonly string[]> {
  await using one = bare;
  const said = await converse(one, script);
  return [...said, `ended ${await one.ended}`, `left ${readdirSync(one.runDir).join()}`];
}

/** A real machine's firmware resets it once more after a reset. */
const firmware = (line: string): boolean => line.includes('"reason":"guest-reset"');

const compare = (
  what: string,
  script: readonly Line[],
  guest: keyof typeof tinyGuests,
  words: string,
  more: readonly string[] = [],
): void => {
  test.serial(`${what}: QEMU and its stand-in say the same, line by line`, async (t) => {
    const real = await record(await machine(t, realQemu, guest, "", more), script);
    const standIn = await record(await machine(t, standInQemu, "deaf", words, more), script);
    t.true(real.length > script.length);
    t.deepEqual(
      standIn,
      real.filter((line) => !firmware(line)),
    );
  });
};

compare(
  "commands, bad and good, with a guest that lets go of its NICs",
  monitorScript,
  "polite",
  "standin.agent=silent",
);
compare(
  "a guest that does not let go of its NICs",
  deafScript,
  "deaf",
  "standin.agent=silent standin.qemu=keep-nics",
);

compare("disks, plugged and unplugged", disksScript, "polite", "standin.agent=silent");

compare("a machine with a NIC of its owner's", ownersScript, "polite", "standin.agent=silent", [
  "-device",
  "virtio-net-pci,id=nic0,bus=br0,addr=0x5,romfile=",
]);

/** Two clients of one monitor, SIGTERM, and what it said. */
async function clientsAndEnd(bare: BareMachine): Promise<readonly unknown[]> {
  await using one = bare;
  const seen: unknown[] = [];
  const first = await one.connect("qmp");
  first.socket.on("data", (bytes: Buffer) => seen.push(`first ${bytes.length}`));
  while (seen.length < 1) await new Promise((resolve) => setTimeout(resolve, 5));
  using second = await one.connect("qmp");
  let heard = "";
  second.socket.on("data", (bytes: Buffer) => {
    seen.push(`second ${bytes.length}`);
    heard += bytes.toString();
  });
  second.socket.write('{"execute":"query-status"}\n');
  await new Promise((resolve) => setTimeout(resolve, 200));
  seen.push("the first leaves");
  first.socket.destroy();
  // The greeting comes of a thread of the monitor's. The answer, a refusal, comes of QEMU's main
  // loop, which runs once SIGTERM is handled: before that a signal ends QEMU at once.
  while (!heard.includes("error")) await new Promise((resolve) => setTimeout(resolve, 5));
  one.child.kill("SIGTERM");
  seen.push(await one.ended, readdirSync(one.runDir));
  return seen;
}

test.serial("one client at a time is served; SIGTERM leaves no file", async (t) => {
  const real = await clientsAndEnd(await machine(t, realQemu, "deaf", ""));
  const standIn = await clientsAndEnd(await machine(t, standInQemu, "deaf", ""));
  t.deepEqual(withoutLengths(standIn), withoutLengths(real));
  t.is(real.at(-2), "0");
});

/** Whether greeting and answer come in one piece is chance. */
const withoutLengths = (seen: readonly unknown[]): readonly unknown[] => [
  ...new Set(seen.map((line) => (typeof line === "string" ? line.replace(/ \d+$/, "") : line))),
];

test.serial("the version is QEMU's own, and an option it does not have is refused", async (t) => {
  for (const option of ["--version", "-no-such-option"]) {
    const [real, standIn] = await Promise.all(
      [realQemu, standInQemu].map((qemu) => run([qemu, option], { okCodes: [0, 1] })),
    );
    t.is(standIn?.exitCode, real?.exitCode);
    t.is(standIn?.stdout.split("\n")[0], real?.stdout.split("\n")[0]);
    t.regex(standIn?.stderr ?? "", real?.exitCode === 0 ? /^$/ : /-no-such-option: invalid option/);
  }
});
