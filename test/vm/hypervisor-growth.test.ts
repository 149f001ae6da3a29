import test, { type ExecutionContext } from "ava";
import { memorySlots } from "../../hypervisor/argv/argv.ts";
import { Growth } from "../../hypervisor/growth/growth.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { never, rig } from "./hypervisor-rig.ts";

/**
 * A machine whose guest looks at nothing, and what makes it grow. Its own connection stays
 * podnet's: this is the second monitor.
 */
async function roomy(t: ExecutionContext) {
  const it = await rig("deaf");
  t.teardown(() => it[Symbol.asyncDispose]());
  Object.assign(it.plan, { room: { vcpu: 2, memoryMib: 130 + 2 * memorySlots } });
  const { vm } = await it.start();
  const qmp = await QmpClient.open(vm.socketPath("verify"));
  t.teardown(() => qmp[Symbol.dispose]());
  const objects = async (): Promise<string[]> =>
    (await qmp.execute("qom-list", { path: "/objects" }))
      .map(({ name }) => name)
      .filter((name) => name.startsWith("memory"));
  return { growth: new Growth({ qmp: () => qmp, takenUpMs: 50 }), objects };
}

test("QEMU counts what was plugged in, and a guest that looks at nothing is reported", async (t) => {
  const { growth } = await roomy(t);
  t.deepEqual(await growth.size(never), { vcpu: 1, memoryMib: 128 });
  t.is(await growth.grow({ vcpu: 2, memoryMib: 130 }, never), "ignored");
  t.deepEqual(await growth.size(never), { vcpu: 2, memoryMib: 130 });
  t.is(await growth.grow({ vcpu: 2, memoryMib: 130 }, never), "taken", "nothing was missing");
});

test("memory that QEMU refuses leaves nothing behind", async (t) => {
  const { growth, objects } = await roomy(t);
  const tooMuch = growth.grow({ vcpu: 2, memoryMib: 4096 }, never);
  t.like(await t.throwsAsync(tooMuch), { code: "QMP_FAILED", step: "vm.grow" });
  t.deepEqual(await objects(), []);
  t.deepEqual(await growth.size(never), { vcpu: 1, memoryMib: 128 });
});

/** (QEMU takes multiples of 2 MiB.) */
test("memory can be given as often as there are slots", async (t) => {
  const { growth } = await roomy(t);
  for (let n = 1; n <= memorySlots; n++)
    await growth.grow({ vcpu: 1, memoryMib: 128 + 2 * n }, never);
  const more = growth.grow({ vcpu: 1, memoryMib: 130 + 2 * memorySlots }, never);
  t.like(await t.throwsAsync(more), { code: "LIMIT_REACHED" });
});
