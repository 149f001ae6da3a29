import test, { type ExecutionContext } from "ava";
import { isPodnetError } from "../../core/errors.ts";
import { addressOf, execIn, type Rig } from "./daemon-rig.ts";
import { create, eventually, openStandInRig } from "./standin-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await openStandInRig();
  await create(rig.client, "steady");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** A create under way, and whether it has ended. */
class Hanging {
  readonly name: string;
  readonly outcome: Promise<unknown>;
  ended = false;

  constructor(name: string, words: string) {
    this.name = name;
    this.outcome = create(rig.client, name, words).then(
      () => undefined,
      (error: unknown) => error,
    );
    void this.outcome.then(() => {
      this.ended = true;
    });
  }
}

/** Everything a pod is good for, by one that has nothing to do with the bad ones. */
async function othersWork(t: ExecutionContext): Promise<void> {
  const pod = await create(rig.client, "bystander");
  await rig.lab.host.ping(addressOf(pod), 1);
  for (const name of ["bystander", "steady"])
    t.deepEqual(await execIn(rig.client, name, "echo", name), { output: `${name}\n`, code: 0 });
  await rig.client.pods.delete({ idOrName: "bystander" });
}

/**
 * Machines and guests that would keep a create waiting for its deadlines, which are minutes here.
 */
const hanging = [
  "standin.agent=silent",
  "standin.agent=mute",
  "standin.agent=slow:3600000",
  "standin.agent=drip:3600000",
  "standin.qemu=mute",
  "standin.qemu=hang:query-status",
  "standin.qemu=hang:device_add",
] as const;

test.serial("while creates hang others end; each that hangs can be deleted", async (t) => {
  const before = await rig.inventory();
  const all = hanging.map((words, index) => new Hanging(`hangs-${index}`, words));
  // Each has started its machine by then, or is about to.
  await Promise.all(
    all.map(({ name }) =>
      eventually(rig.client, ({ pod, span }) => pod?.name === name && span !== undefined, 0n),
    ),
  );
  for (let round = 0; round < 3; round++) await othersWork(t);
  for (const { name, ended } of all) t.false(ended, name);
  await Promise.all(all.map(({ name }) => rig.client.pods.delete({ idOrName: name })));
  for (const { name, outcome } of all) t.true(isPodnetError(await outcome, "CANCELLED"), name);
  t.deepEqual(await rig.changes(before), []);
});

/** How creates end that end by themselves. */
const ends: Readonly<Record<string, readonly string[]>> = {
  "standin.agent=garbage": ["AGENT_PROTOCOL"],
  "standin.agent=huge": ["AGENT_PROTOCOL"],
  "standin.agent=flood:0": ["AGENT_PROTOCOL"],
  // Too many of them, or one in the middle of a command.
  "standin.agent=restart:1": ["AGENT_PROTOCOL", "AGENT_DISCONNECTED"],
  "standin.agent=refuse": ["AGENT_REFUSED"],
  "standin.agent=wrong-answer": ["AGENT_REFUSED"],
  "standin.agent=poweroff-after:0": ["QEMU_EXITED"],
  "standin.agent=reset-after:0": ["BOOT_FAILED"],
  "standin.qemu=hangup": ["QMP_PROTOCOL"],
  "standin.qemu=garbage": ["QMP_PROTOCOL"],
  "standin.qemu=huge": ["QMP_PROTOCOL"],
  "standin.qemu=garbage-after:qmp_capabilities": ["QMP_PROTOCOL"],
  "standin.qemu=huge-after:qom-list": ["QMP_PROTOCOL"],
  "standin.qemu=hangup-after:getfd": ["QEMU_EXITED"],
  "standin.qemu=refuse:qmp_capabilities": ["QMP_FAILED"],
  "standin.qemu=refuse:netdev_add": ["QMP_FAILED"],
  "standin.qemu=refuse:device_add": ["QMP_FAILED"],
};

/** Steps that hang: their request's own deadline ends them. */
const late: Readonly<Record<string, readonly string[]>> = {
  "standin.agent=silent": ["DEADLINE_EXCEEDED"],
  "standin.agent=mute": ["DEADLINE_EXCEEDED"],
  "standin.agent=slow:3600000": ["DEADLINE_EXCEEDED"],
  "standin.agent=drip:3600000": ["DEADLINE_EXCEEDED"],
  "standin.qemu=mute": ["DEADLINE_EXCEEDED"],
  "standin.qemu=hang:qom-list": ["DEADLINE_EXCEEDED"],
};

const failures = (what: string, wanted: typeof ends, timeoutMs: number): void => {
  test.serial(`${what}, all at once: each fails in its own way, and is undone`, async (t) => {
    const before = await rig.inventory();
    const found = await Promise.all(
      Object.keys(wanted).map(async (words, index) => {
        const spec = { name: `bad-${index}`, boot: { cmdline: words } };
        const error = await t.throwsAsync(rig.client.pods.create({ spec, timeoutMs }));
        if (!isPodnetError(error)) return [words, String(error)] as const;
        t.truthy(error.step, `${words}: the error says where`);
        t.truthy(error.hint, `${words}: the error says what to do`);
        return [words, error.code] as const;
      }),
    );
    t.deepEqual(
      found.filter(([words, code]) => wanted[words]?.includes(code) !== true),
      [],
    );
    t.is((await execIn(rig.client, "steady", "true")).code, 0);
    t.deepEqual(await rig.changes(before), []);
  });
};

failures("machines and guests that break the rules", ends, 0);
failures("machines and guests that hang", late, 1500);

test.serial("events no QEMU has yet are passed over", async (t) => {
  const before = await rig.inventory();
  await create(rig.client, "chatty", "standin.qemu=events:qmp_capabilities,events:device_add");
  await othersWork(t);
  await rig.client.pods.delete({ idOrName: "chatty" });
  t.deepEqual(await rig.changes(before), []);
});

test.serial("a slow guest, and one that drips, come to run all the same", async (t) => {
  const before = await rig.inventory();
  const slow = new Hanging("slow", "standin.agent=slow:300");
  const drips = new Hanging("drips", "standin.agent=drip:2");
  await othersWork(t);
  t.is(await slow.outcome, undefined);
  t.is(await drips.outcome, undefined);
  for (const idOrName of ["slow", "drips"]) await rig.client.pods.delete({ idOrName, force: true });
  t.deepEqual(await rig.changes(before), []);
});
