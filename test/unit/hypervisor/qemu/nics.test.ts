import { closeSync, openSync } from "node:fs";
import test from "ava";
import { parseMac } from "../../../../core/address.ts";
import { parseIfName } from "../../../../core/names.ts";
import type { NicPlan } from "../../../../hypervisor/driver.ts";
import { eventData } from "../../../../hypervisor/qmp/commands.ts";
import { QmpClient } from "../../../../hypervisor/qmp/client.ts";
import { kindFor } from "../../../../hypervisor/argv/machine-kinds.ts";
import { queuesOf } from "../../../../hypervisor/argv/plug-commands.ts";
import { Nics } from "../../../../hypervisor/nics/nics.ts";
import {
  type Command,
  event,
  type HostileConnection,
  startHostileQmp,
} from "../../../peers/hostile-qmp.ts";

const never = new AbortController().signal;

const nic: NicPlan = {
  nicId: "nic1",
  netdevId: "netdev1",
  fdName: "fd1",
  tap: parseIfName("pntap1"),
  mac: parseMac("52:54:00:00:00:01"),
  slot: 1,
};

/**
 * Slots of a VM whose QEMU answers as `answer` says; undefined leaves a command without an answer.
 */
async function slots(
  answer: (command: Command, peer: HostileConnection) => object | undefined,
  body: (nics: Nics, tap: number) => Promise<void>,
  unplugMs = 200,
): Promise<void> {
  await using server = await startHostileQmp(async (peer) => {
    await peer.negotiate();
    for (;;) {
      const command = await peer.nextCommand();
      const said = answer(command, peer);
      if (said !== undefined) peer.send({ ...said, id: command.id });
    }
  });
  using qmp = await QmpClient.open(server.path, { deadlineMs: 200 });
  const kind = kindFor("x86_64");
  const nics = new Nics({ kind, qmp: () => qmp, unplugMs, onRemoved: () => {} });
  qmp.onEvent((one) => {
    const device = eventData(one, "DEVICE_DELETED")?.device;
    if (device !== undefined) nics.deviceDeleted(device);
  });
  const tap = openSync("/dev/null", "r");
  try {
    await body(nics, tap);
  } finally {
    closeSync(tap);
  }
}

const done = { return: {} };
const notFound = { error: { class: "DeviceNotFound", desc: "Device 'nic1' not found" } };
const gone = event("DEVICE_DELETED", { device: "nic1", path: "/machine/peripheral/nic1" });

/** The first `device_add` is not answered; what comes afterwards is as `undone` says. */
function slowOnce(undone: (peer: HostileConnection) => object) {
  let plugs = 0;
  return ({ execute }: Command, peer: HostileConnection): object | undefined => {
    if (execute === "device_add" && ++plugs === 1) return undefined;
    return execute === "device_del" ? undone(peer) : done;
  };
}

test("a plug without an answer: the NIC may come and go while it is undone", async (t) => {
  const answer = slowOnce((peer) => {
    peer.send(gone);
    return done;
  });
  const asked: string[] = [];
  const noted: typeof answer = (command, peer) => {
    asked.push(command.execute);
    return answer(command, peer);
  };
  await slots(noted, async (nics, tap) => {
    t.like(await t.throwsAsync(nics.plug(nic, [tap], never)), { code: "QMP_TIMEOUT" });
    const undone = asked.slice(asked.indexOf("device_add") + 1).toSorted();
    t.deepEqual(undone, ["closefd", "device_del", "netdev_del"]);
    await t.notThrowsAsync(nics.plug(nic, [tap], never), "the slot is free again");
  });
});

test("a guest that lets go of one NIC after the other has time for each; its traffic has not", async (t) => {
  const log: string[] = [];
  const noted = ({ execute, arguments: args }: Command, peer: HostileConnection): object => {
    const { id = "" } = (args ?? {}) as { id?: string };
    log.push(`${execute} ${id}`);
    const turn = Number(id.slice("nic".length));
    if (execute === "device_del" && turn <= 3)
      setTimeout(() => {
        log.push(`left ${id}`);
        peer.send(event("DEVICE_DELETED", { device: id, path: `/machine/peripheral/${id}` }));
      }, 400 * turn);
    return done;
  };
  const all = [1, 2, 3, 4].map((slot) => ({
    ...nic,
    nicId: `nic${slot}`,
    netdevId: `netdev${slot}`,
    slot,
  }));
  await slots(
    noted,
    async (nics, tap) => {
      for (const each of all) await nics.plug(each, [tap], never);
      const outcomes = await Promise.all(all.map((each) => nics.unplug(each, never)));
      t.deepEqual(outcomes, ["unplugged", "unplugged", "unplugged", "pending"]);
      t.true(log.indexOf("netdev_del netdev3") < log.indexOf("left nic3"), log.join("\n"));
      // Alone it has the time of one.
      const { nicId, netdevId, slot } = all[3] ?? nic;
      const again = performance.now();
      t.is(await nics.unplug({ nicId, netdevId, slot, fdName: "fd1" }, never), "pending");
      t.true(performance.now() - again < 2000);
    },
    700,
  );
});

test("each queue has a descriptor, and none of them is left behind", async (t) => {
  const asked: string[] = [];
  const noted = ({ execute, arguments: args }: Command): object => {
    asked.push(`${execute} ${JSON.stringify(args)}`);
    return execute === "device_add" ? { error: { class: "GenericError", desc: "no" } } : done;
  };
  await slots(noted, async (nics, tap) => {
    await t.throwsAsync(nics.plug(nic, [tap, tap, tap], never), { code: "QMP_FAILED" });
    t.is(asked.filter((each) => each.startsWith("getfd")).length, 3);
    const closed = asked.filter((each) => each.startsWith("closefd"));
    t.deepEqual(
      closed,
      ["fd1", "fd1-q1", "fd1-q2"].map((fdname) => `closefd ${JSON.stringify({ fdname })}`),
    );
    t.true(asked.some((each) => /^netdev_add .*"fds":"fd1:fd1-q1:fd1-q2"/.test(each)));
    t.true(asked.some((each) => /^device_add .*"mq":true,"vectors":8/.test(each)));
  });
});

test("queues: one for each processor, and one in clones and other programs' machines", (t) => {
  t.deepEqual(
    [1, 2, 8, 64].map((vcpu) => queuesOf({ vcpu })),
    [1, 2, 8, 8],
  );
  t.is(queuesOf({ vcpu: 4, factory: "template" }), 1);
  const attached = { qmp: "/q", type: "q35", accelerator: "tcg" } as const;
  t.is(queuesOf({ vcpu: 4, attached }), 1);
});

test("a plug without an answer that never was: no event will come to free the slot", async (t) => {
  await slots(
    slowOnce(() => notFound),
    async (nics, tap) => {
      t.like(await t.throwsAsync(nics.plug(nic, [tap], never)), { code: "QMP_TIMEOUT" });
      await t.notThrowsAsync(nics.plug(nic, [tap], never));
    },
  );
});

test("a plug without an answer that the guest holds on to keeps the slot until it lets go", async (t) => {
  await slots(
    slowOnce(() => done),
    async (nics, tap) => {
      t.like(await t.throwsAsync(nics.plug(nic, [tap], never)), { code: "QMP_TIMEOUT" });
      t.like(await t.throwsAsync(nics.plug(nic, [tap], never)), { code: "NIC_UNPLUG_PENDING" });
      nics.deviceDeleted(nic.nicId);
      await t.notThrowsAsync(nics.plug(nic, [tap], never));
    },
  );
});

test("an unplug that fails after the NIC has left frees the slot", async (t) => {
  let unanswered = true;
  const answer = ({ execute }: Command, peer: HostileConnection): object | undefined => {
    if (execute === "device_del") peer.send(gone);
    if (execute !== "netdev_del" || !unanswered) return done;
    unanswered = false;
    return undefined;
  };
  await slots(answer, async (nics, tap) => {
    await nics.plug(nic, [tap], never);
    t.like(await t.throwsAsync(nics.unplug(nic, never)), { code: "QMP_TIMEOUT" });
    await t.notThrowsAsync(nics.plug(nic, [tap], never));
  });
});
