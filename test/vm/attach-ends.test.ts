import { renameSync } from "node:fs";
import { createConnection } from "node:net";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";
import { startOthers, until, withAgent } from "./attach-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await openRig('factory = "cold"\n');
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial.afterEach.always(async () => {
  for (const { id } of (await rig.client.pods.list({})).pods)
    await rig.client.pods.delete({ idOrName: id, force: true });
});

test.serial("what is the owner's is refused, and says why", async (t) => {
  const { client } = rig;
  await using machine = await startOthers("pc", "none");
  await client.pods.attach({ spec: { name: "theirs" }, qmpSocket: machine.qmp });
  const idOrName = "theirs";
  for (const refused of [
    client.pods.stop({ idOrName }),
    client.pods.start({ idOrName }),
    client.pods.pause({ idOrName }),
    client.pods.resume({ idOrName }),
    client.pods.update({ idOrName, resources: { memoryMib: 256 } }),
    (async () => {
      for await (const _ of client.pods.console({ idOrName }));
    })(),
  ])
    await t.throwsAsync(refused, { code: "UNSUPPORTED" });
  t.true(machine.runs());
  t.is((await client.pods.get({ idOrName })).pod?.state, PodState.RUNNING);
  // The owner may, and the pod reports it.
  await machine.ask("stop");
  await until(async () => (await client.pods.get({ idOrName })).pod?.state === PodState.PAUSED);
  await machine.ask("cont");
  await until(async () => (await client.pods.get({ idOrName })).pod?.state === PodState.RUNNING);
  const twice = client.pods.attach({ spec: {}, qmpSocket: machine.qmp });
  const held = await t.throwsAsync(twice, { code: "WRONG_STATE" });
  t.regex(held?.message ?? "", /pod "theirs"/);
  // Its firmware never lets go of a NIC: nothing passes by it, and that is reported.
  await t.throwsAsync(client.pods.detach({ idOrName }), { code: "NIC_UNPLUG_PENDING" });
  t.is((await client.pods.get({ idOrName })).pod?.state, PodState.FAILED);
  t.true((await client.pods.detach({ idOrName, force: true })).existed);
  t.true(machine.runs());
});

test.serial("a pod of podnet's own is not detached, and its machine not attached", async (t) => {
  const { client } = rig;
  const { pod } = await client.pods.create({ spec: { name: "ours" } });
  await t.throwsAsync(client.pods.detach({ idOrName: "ours" }), { code: "WRONG_STATE" });
  const qmpSocket = `${rig.daemon.runDir}/pods/${pod?.id}/witness.sock`;
  const error = await t.throwsAsync(client.pods.attach({ spec: {}, qmpSocket }), {
    code: "WRONG_STATE",
  });
  t.regex(error?.message ?? "", /pod "ours"/);
  await client.pods.delete({ idOrName: "ours" });
});

test.serial(
  "podnetd killed and started again has the machine as before; one that ended meanwhile fails",
  async (t) => {
    const { lab } = rig;
    const atFirst = await rig.inventory();
    await using machine = await startOthers("bridge");
    const { pod } = await rig.client.pods.attach({
      spec: { name: "theirs" },
      ...withAgent(machine),
    });
    const address = addressOf(pod);
    await rig.restart("kill");
    const idOrName = "theirs";
    t.is((await rig.client.pods.get({ idOrName })).pod?.state, PodState.RUNNING);
    await lab.host.ping(address);
    t.is(
      (await rig.client.pods.addInterface({ idOrName, interface: {} })).pod?.interfaces.length,
      2,
    );
    await until(
      async () =>
        (await execIn(rig.client, idOrName, "true").catch(() => ({ code: 1 }))).code === 0,
    );

    await rig.daemon.kill();
    machine.process.kill("SIGKILL");
    await until(async () => !machine.runs());
    await rig.restart("kill");
    const { pod: failed } = await rig.client.pods.get({ idOrName });
    t.is(failed?.state, PodState.FAILED);
    t.deepEqual(failed?.interfaces[0]?.addresses, pod?.interfaces[0]?.addresses);
    t.true((await rig.client.pods.detach({ idOrName })).existed);
    t.deepEqual(await rig.changes(atFirst), []);
  },
);

test.serial(
  "another machine at the socket is not taken for the first, and gets nothing",
  async (t) => {
    await using first = await startOthers("bridge", "none");
    await using second = await startOthers("bridge", "none");
    const idOrName = "theirs";
    await rig.client.pods.attach({ spec: { name: idOrName }, qmpSocket: first.qmp });
    const aside = `${first.qmp}.aside`;
    renameSync(first.qmp, aside);
    renameSync(second.qmp, first.qmp);
    await rig.restart("kill");
    const reason = async () => (await rig.client.pods.get({ idOrName })).pod?.reason ?? "";
    await until(async () => /Another machine has the QMP socket now/.test(await reason()));
    t.deepEqual(await second.nics(), []);
    renameSync(first.qmp, second.qmp);
    renameSync(aside, first.qmp);
    await until(async () => (await reason()) === "");
    t.is((await rig.client.pods.get({ idOrName })).pod?.state, PodState.RUNNING);
    t.is((await first.nics()).length, 1);
    t.deepEqual(await second.nics(), []);
  },
);

test.serial(
  "a machine that ends takes its NICs along; the pod fails and keeps its addresses",
  async (t) => {
    const { client } = rig;
    await using machine = await startOthers("bridge", "none");
    const { pod } = await client.pods.attach({ spec: { name: "theirs" }, qmpSocket: machine.qmp });
    machine.process.kill("SIGKILL");
    const idOrName = "theirs";
    await until(async () => (await client.pods.get({ idOrName })).pod?.state === PodState.FAILED);
    const asked = { interfaces: [{ address: addressOf(pod) }] };
    await t.throwsAsync(client.pods.create({ spec: asked, planOnly: true }), {
      code: "ADDRESS_IN_USE",
    });
    await client.pods.detach({ idOrName });
    t.deepEqual((await client.pods.list({})).pods, []);
  },
);

test.serial(
  "a QMP socket that is in use, is none, or whose machine cannot have NICs is reported within two seconds",
  async (t) => {
    const { client } = rig;
    await using machine = await startOthers("bridge", "none");
    const attach = (qmpSocket: string) => client.pods.attach({ spec: {}, qmpSocket });
    const other = createConnection(machine.qmp);
    await new Promise((resolve) => other.once("data", resolve));
    await t.throwsAsync(
      client.pods.attach({ spec: {}, qmpSocket: machine.qmp }, { timeoutMs: 2000 }),
      { code: "QMP_IN_USE" },
    );
    other.destroy();
    await t.throwsAsync(attach("/nowhere/qmp"), { code: "INVALID_ARGUMENT" });
    await t.throwsAsync(attach(rig.daemon.configFile), { code: "INVALID_ARGUMENT" });
    await using without = await startOthers("no place", "none");
    await t.throwsAsync(attach(without.qmp), { code: "UNSUPPORTED", message: /no bus/ });
    await using held = await startOthers("pc", "none", ["-S"]);
    await t.throwsAsync(attach(held.qmp), { code: "WRONG_STATE" });
    await t.throwsAsync(
      client.pods.attach({ spec: { boot: { kernel: "/x" } }, qmpSocket: machine.qmp }),
      { code: "INVALID_ARGUMENT" },
    );
    t.true(machine.runs());
    // That machine, once it is free, can be: a plan takes nothing.
    const { plan } = await client.pods.attach({ spec: {}, qmpSocket: machine.qmp, planOnly: true });
    const lines = plan?.sections.flatMap((section) => section.lines).join("\n") ?? "";
    t.regex(lines, new RegExp(`QMP ${machine.qmp}: q35`));
    t.regex(lines, /"bus":"bridge1","addr":"0x1"/);
    t.deepEqual(await machine.nics(), []);
  },
);
