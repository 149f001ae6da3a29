import test from "ava";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { startOthersMachine } from "../crash/others-machine.ts";
import type { Rig } from "./daemon-rig.ts";
import { joinStandInRig } from "./standin-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** Whether the command is refused as what podnet cannot do; throws when it fails in another way. */
async function refuses(...args: readonly string[]): Promise<boolean> {
  const { stderr, exitCode } = await rig.daemon.tryPodnet(...args);
  if (exitCode === 0) return false;
  if (!stderr.includes("(UNSUPPORTED)")) throw new Error(stderr);
  return true;
}

/** The commands that `get` lists as impossible, and those that are refused. */
async function listedAndRefused(pod: Pod | undefined): Promise<readonly (readonly string[])[]> {
  const { name = "", guest } = pod ?? {};
  const listed = (guest?.cannot ?? []).map((line) => line.replace(/:.*/, "")).join(" and ");
  const names = ["exec", "logs"];
  const refused: string[] = [];
  if (await refuses("exec", name, "--", "true")) refused.push("exec");
  if (await refuses("logs", name)) refused.push("logs");
  return [names.filter((each) => new RegExp(`\\b${each}\\b`).test(listed)), refused];
}

test.serial("get lists exec and logs under Cannot exactly when they are refused", async (t) => {
  const { pods } = rig.client;
  const seen: Record<string, readonly (readonly string[])[]> = {};
  const look = async (pod: Pod | undefined): Promise<void> => {
    seen[pod?.name ?? ""] = await listedAndRefused(pod);
  };
  await look((await pods.create({ spec: { name: "ours" } })).pod);
  await look((await pods.create({ spec: { name: "stock", boot: { agent: "none" } } })).pod);
  for (const name of ["without-channel", "without-tty"]) {
    await using machine = await startOthersMachine();
    const channelSocket = name === "without-tty" ? machine.channel : "";
    await look((await pods.attach({ spec: { name }, qmpSocket: machine.qmp, channelSocket })).pod);
    await pods.detach({ idOrName: name });
  }
  for (const idOrName of ["ours", "stock"]) await pods.delete({ idOrName, force: true });
  const both = ["exec", "logs"];
  t.deepEqual(seen, {
    ours: [[], []],
    stock: [["exec"], ["exec"]],
    "without-channel": [both, both],
    "without-tty": [both, both],
  });
});
