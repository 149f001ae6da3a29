import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { lookAtMachine } from "../../../../hypervisor/attach/look.ts";
import type { FoundMachine } from "../../../../hypervisor/driver.ts";
import type { QmpClient } from "../../../../hypervisor/qmp/client.ts";

type Said = Readonly<Record<string, unknown>>;

/**
 * What a QEMU 7.2 answered to each question, by kind of machine (`kinds` of test/vm/attach-rig.ts).
 */
const machines = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../fixtures/others-machines.json"), "utf8"),
) as Record<string, Said>;

/** The processors' threads are this process's, as is whoever listens. */
const cpus = { "query-cpus-fast {}": [{ "thread-id": process.pid, "cpu-index": 0 }] };

function look(kind: string, other: Said = {}): Promise<FoundMachine> {
  const said: Said = { ...machines[kind], ...cpus, ...other };
  const qmp = {
    peer: { pid: process.pid, uid: 0, gid: 0 },
    execute: (command: string, args: object): Promise<unknown> => {
      const question = `${command} ${JSON.stringify(args)}`;
      if (question in said) return Promise.resolve(said[question]);
      const details = { class: "DeviceNotFound", command };
      return Promise.reject(new PodnetError("QMP_FAILED", question, { details }));
    },
  };
  return lookAtMachine(qmp as unknown as QmpClient, new AbortController().signal);
}

const places = async (kind: string, other: Said = {}): Promise<string[]> =>
  (await look(kind, other)).places.map(({ bus, slot }) => `${bus} ${slot}`);

test("ports that are empty come first, each for one NIC", async (t) => {
  t.deepEqual(await places("ports"), ["port2 0", "port3 0"]);
  t.deepEqual(await places("ports without ACPI"), ["port1 0"]);
});

test("behind a bridge and on pc's own bus every slot that is free is a place, and none that is taken", async (t) => {
  const behind = await places("bridge");
  t.is(behind.length, 30);
  t.false(behind.includes("bridge1 5"));
  t.false(behind.includes("bridge1 0"));
  t.is(behind[0], "bridge1 1");
  const own = await places("pc");
  t.false(own.includes("pci.0 0"));
  t.false(own.includes("pci.0 1"), "the chipset's");
  t.false(own.includes("pci.0 5"));
  t.is(own[0], "pci.0 2");
});

test("a machine says what it is", async (t) => {
  const { type, accelerator, vcpu, memoryMib, pid } = await look("bridge");
  t.deepEqual(
    { type, accelerator, vcpu, memoryMib, pid },
    { type: "q35", accelerator: "tcg", vcpu: 1, memoryMib: 128, pid: process.pid },
  );
  t.is((await look("pc")).type, "pc");
  t.is((await look("pc", { "query-kvm {}": { enabled: true, present: true } })).accelerator, "kvm");
});

const typeOf = 'qom-get {"path":"/machine","property":"type"}';
const handlerOf = (path: string): string =>
  `qom-get ${JSON.stringify({ path, property: "hotplug-handler" })}`;

for (const [what, kind, other, code, message] of [
  ["no bus for NICs", "no place", {}, "UNSUPPORTED", /no bus/],
  [
    "a bridge that cannot be plugged into",
    "bridge",
    { [handlerOf("/machine/peripheral/bridge1/bridge1")]: "" },
    "UNSUPPORTED",
    /no bus/,
  ],
  ["another type", "bridge", { [typeOf]: "microvm-machine" }, "UNSUPPORTED", /"microvm"/],
  [
    "no virtio-net",
    "bridge",
    { 'qom-list-types {"implements":"virtio-net-pci"}': [] },
    "UNSUPPORTED",
    /virtio-net-pci/,
  ],
  [
    "processors that stand",
    "bridge",
    { "query-status {}": { running: false, status: "paused" } },
    "WRONG_STATE",
    /paused/,
  ],
  [
    "a migration",
    "bridge",
    { "query-migrate {}": { status: "active" } },
    "WRONG_STATE",
    /migrates/,
  ],
  ["nonsense", "bridge", { "query-cpus-fast {}": [{}] }, "QMP_PROTOCOL", /processors/],
  [
    "unknown processors",
    "bridge",
    { "query-cpus-fast {}": [{ "thread-id": 2 ** 30 }] },
    "UNSUPPORTED",
    /process cannot be identified/,
  ],
] as const)
  test(`a machine is refused for ${what}, by its code`, async (t) => {
    const error = await t.throwsAsync(look(kind, other), { message, instanceOf: PodnetError });
    t.is(error?.code, code);
    t.truthy(error?.hint);
  });

test("a machine whose places are all taken is told apart from one without any", async (t) => {
  const bus = "/machine/peripheral/port1/port1";
  const taken = {
    [`qom-list ${JSON.stringify({ path: bus })}`]: [
      { name: "child[0]", type: "link<virtio-net-pci>" },
    ],
    [`qom-get ${JSON.stringify({ path: `${bus}/child[0]`, property: "addr" })}`]: 0,
  };
  const error = await t.throwsAsync(look("ports without ACPI", taken), { instanceOf: PodnetError });
  t.is(error?.code, "NIC_SLOTS_FULL");
});

test("a device that has just been unplugged takes its bus out of the choice, not the look", async (t) => {
  const bus = "/machine/peripheral/port2/port2";
  const going = {
    [`qom-list ${JSON.stringify({ path: bus })}`]: [{ name: "child[7]", type: "link<x>" }],
  };
  t.deepEqual(await places("ports", going), ["port3 0"]);
});
