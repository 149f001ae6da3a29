import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

/** No pod of the files that share the rig. */
const subject = "grows";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const pod = { idOrName: subject };
const update = async (resources: object): Promise<Pod> => {
  const { pod: updated } = await rig.client.pods.update({ ...pod, resources });
  if (updated === undefined) throw new Error("no pod");
  return updated;
};

async function inGuest(script: string): Promise<string> {
  const { output, code } = await execIn(rig.client, subject, "sh", "-c", script);
  if (code !== 0) throw new Error(`${script}: ${code} ${output}`);
  return output.trim();
}

const memoryMib = async (): Promise<number> => {
  const blocks = await inGuest("cat /sys/devices/system/memory/memory*/state | grep -c online");
  return Number(blocks) * 128;
};
const processors = async (): Promise<number> => Number(await inGuest("nproc"));

/** Waits until the guest has what is asked for: it switches on what it is given one by one. */
async function has(t: ExecutionContext, vcpu: number, mib: number): Promise<void> {
  let found: readonly number[] = [];
  for (let attempt = 0; attempt < 100; attempt++) {
    found = [await processors(), await memoryMib()];
    if (found[0] === vcpu && found[1] === mib) break;
    await delay(100);
  }
  t.deepEqual(found, [vcpu, mib]);
}

const refused = (resources: object) => () => rig.client.pods.update({ ...pod, resources });

test.serial("a running pod takes processors and memory, and starts with them again", async (t) => {
  t.timeout(120_000);
  t.teardown(() => rig.client.pods.delete({ ...pod, force: true }));
  const resources = { vcpu: 1, memoryMib: 128, maxVcpu: 3, maxMemoryMib: 512 };
  const { pod: created } = await rig.client.pods.create({ spec: { name: subject, resources } });
  t.like(created?.vm, { vcpu: 1, memoryMib: 128, maxVcpu: 3, maxMemoryMib: 512 });
  await has(t, 1, 128);
  await inGuest("echo kept > /tmp/before");

  t.like((await update({ memoryMib: 256 })).vm, { vcpu: 1, memoryMib: 256 });
  await has(t, 1, 256);
  t.like((await update({ vcpu: 3, memoryMib: 384 })).vm, { vcpu: 3, memoryMib: 384 });
  await has(t, 3, 384);
  t.is(await inGuest("cat /tmp/before"), "kept");
  // The guest can use it: more than it began with.
  await inGuest(`mkdir /large && mount -t tmpfs -o size=200M none /large &&
    dd if=/dev/zero of=/large/file bs=1M count=160 2>&1 && umount /large`);

  for (const [asked, code, field] of [
    [{ vcpu: 2 }, "UNSUPPORTED", "resources.vcpu"],
    [{ memoryMib: 256 }, "UNSUPPORTED", "resources.memory_mib"],
    [{ maxVcpu: 4 }, "UNSUPPORTED", "resources.max_vcpu"],
    [{ memoryMib: 400 }, "INVALID_ARGUMENT", "resources.memory_mib"],
    [{ vcpu: 4 }, "UNSUPPORTED", "resources.vcpu"],
    [{ memoryMib: 1024 }, "UNSUPPORTED", "resources.memory_mib"],
  ] as const)
    t.like(await t.throwsAsync(refused(asked)), { code, field }, JSON.stringify(asked));

  await rig.restart("kill");
  t.like((await rig.client.pods.get(pod)).pod?.vm, { vcpu: 3, memoryMib: 384 });
  await has(t, 3, 384);

  await rig.client.pods.stop(pod);
  await rig.client.pods.start(pod);
  await has(t, 3, 384);

  await rig.client.pods.stop(pod);
  t.like(await t.throwsAsync(refused({ vcpu: 4 })), { code: "INVALID_ARGUMENT" });
  t.like(await t.throwsAsync(refused({ memoryMib: 64 })), { code: "MEMORY_TOO_SMALL" });
  await update({ vcpu: 2, memoryMib: 128, maxVcpu: 2, maxMemoryMib: 256 });
  const { pod: smaller } = await rig.client.pods.get(pod);
  t.like(smaller?.spec?.resources, { vcpu: 2, memoryMib: 128, maxVcpu: 2, maxMemoryMib: 256 });
});
