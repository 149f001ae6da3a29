import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Rig } from "./daemon-rig.ts";
import { create, joinStandInRig } from "./standin-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial("create prints the end of the console of a guest that does not boot", async (t) => {
  const words = "--cmdline=standin.agent=reset-after:0";
  const { stderr, exitCode } = await rig.daemon.tryPodnet("create", "--name", "bad", words);
  t.is(exitCode, 1);
  t.regex(
    stderr,
    /BOOT_FAILED[^]*hint: See the end of its console[^]*details, console:\n {4}stand-in guest boots\n/,
  );
  // The pod is gone, and its console with it.
  t.is((await rig.daemon.tryPodnet("logs", "bad")).exitCode, 4);
});

test.serial("get prints the end of the console of a pod whose machine ended", async (t) => {
  const { vm } = await create(rig.client, "ends");
  process.kill(vm?.pid ?? Number.NaN, "SIGKILL");
  const failed = async () =>
    (await rig.client.pods.get({ idOrName: "ends" })).pod?.state === PodState.FAILED;
  while (!(await failed())) await delay(20);
  t.regex(
    await rig.daemon.podnet("get", "ends"),
    /Failure +QEMU_EXITED[^]*Hint +See the end of the guest's console[^]*Details, console +stand-in guest boots\n/,
  );
  await rig.client.pods.delete({ idOrName: "ends" });
});
