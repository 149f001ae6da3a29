import { readdirSync } from "node:fs";
import { join } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { parsePodId, type PodId } from "../../core/names.ts";
import type { RunningVm, VmPlan } from "../../hypervisor/driver.ts";
import type { PodFragment } from "../../network/desired.ts";
import type { PodRow } from "../store/pods.ts";
import { adoptVm, type LivePod, livePod, unsubscribe } from "./live-pod.ts";
import { supervise } from "./supervise.ts";
import type { Supervision } from "./supervision.ts";
import { undoPod } from "./undo.ts";

/** Longest a machine may take to be found again, milliseconds. */
const reattachMs = 10_000;

export interface Recovery extends Supervision {
  readonly podsDir: string;
  /** Differs from the recorded one after a restart of the host. */
  readonly bootId: string;
  /** The pod runs and is ours again. */
  attached(live: LivePod): void;
}

const interrupted = (): PodnetError =>
  new PodnetError("CANCELLED", "podnetd ended while the pod was being created", {
    hint: "Create it again",
  });

/**
 * Makes host and rows agree after a start: what runs is taken over, what was half done is undone, and
 * directories without a row are removed. Goes on past the failure of any one pod.
 */
export async function recoverPods(recovery: Recovery): Promise<void> {
  const rows = recovery.records.list();
  await Promise.all(
    rows.map(async (row) => {
      try {
        await recoverPod(row, recovery);
      } catch (thrown) {
        recovery.log.error({ pod_id: row.id, err: thrown }, "Cannot recover the pod");
        recovery.records.state(row.plan, "failed", { error: thrown });
      }
    }),
  );
  await removeStrangers(new Set(rows.map(({ id }) => id)), recovery);
}

async function recoverPod(row: PodRow, recovery: Recovery): Promise<void> {
  switch (row.state) {
    case "running":
    case "paused":
      return reattach(row, recovery);
    case "creating": {
      const failures = await takeDown(row, recovery);
      if (failures.length > 0) throw failures[0];
      if (row.established) recovery.records.state(row.plan, "failed", { error: interrupted() });
      else recovery.records.forget(row.plan, interrupted(), true);
      return;
    }
    case "deleting": {
      const failures = await takeDown(row, recovery);
      if (failures.length > 0) throw failures[0];
      recovery.records.forget(row.plan);
      return;
    }
    case "stopping":
      await takeDown(row, recovery);
      recovery.records.state(row.plan, "stopped");
      return;
    case "stopped":
    case "failed":
      // Nothing should be left of these; undoing what is absent costs little and makes it so.
      await takeDown(row, recovery);
      return;
  }
}

async function takeDown(row: PodRow, recovery: Recovery): Promise<readonly Error[]> {
  const failures = await undoPod(livePod(row.plan, recovery.records.run(row.id)), recovery.host, {
    graceful: false,
  });
  for (const failure of failures) {
    recovery.log.error({ pod_id: row.id, err: failure }, "Cannot undo what is left of the pod");
  }
  return failures;
}

async function reattach(row: PodRow, recovery: Recovery): Promise<void> {
  const { host, records } = recovery;
  const record = records.run(row.id);
  const signal = AbortSignal.timeout(reattachMs);
  const vm =
    record?.bootId === recovery.bootId
      ? await host.driver.reattach(record, row.plan.vm, signal)
      : undefined;
  if (vm === undefined) {
    await takeDown(row, recovery);
    records.state(row.plan, "failed", { error: absent(record?.bootId === recovery.bootId) });
    return;
  }
  const live = livePod(row.plan, record);
  adoptVm(live, vm);
  live.identity = row.guest;
  live.observed = row.observed;
  try {
    await host.network.ensure(await portsOf(live, vm, signal), signal);
  } catch (thrown) {
    unsubscribe(live);
    await vm.detach();
    throw thrown;
  }
  recovery.attached(live);
  // The machine's traffic does not depend on its agent, which is reached meanwhile.
  supervise(live, recovery);
}

/** The ports of NICs that the machine still has: one that its guest ejected took its tap along. */
async function portsOf(live: LivePod, vm: RunningVm, signal: AbortSignal): Promise<PodFragment> {
  const { interfaces, ports } = live.plan;
  const there = await vm.nics(signal);
  const plugged = interfaces.filter(({ nic }) => there.includes(nic.nicId));
  for (const each of interfaces)
    (plugged.includes(each) ? live.plugged : live.ejected).add(each.position);
  return {
    ...ports,
    ports: ports.ports.filter(({ tap }) => plugged.some(({ nic }) => nic.tap === tap)),
  };
}

function absent(sameBoot: boolean): PodnetError {
  if (!sameBoot) {
    return new PodnetError("HOST_RESTARTED", "host restarted", {
      hint: "Start the pod again, with the same addresses, or delete it",
    });
  }
  return new PodnetError("QEMU_EXITED", "The machine ended while podnetd was not running", {
    hint: "Start the pod again, with the same addresses, or delete it",
  });
}

/** Machines of which there is no row: a crash before their row's commit cannot make any, a lost database can. */
async function removeStrangers(known: ReadonlySet<PodId>, recovery: Recovery): Promise<void> {
  for (const podId of podDirectories(recovery.podsDir)) {
    if (known.has(podId)) continue;
    recovery.log.warn({ pod_id: podId }, "Removing a machine that has no record");
    const plan: VmPlan = {
      podId,
      vcpu: 1,
      memoryMib: 0,
      kernel: "",
      initrd: "",
      cmdline: "",
      disks: [],
      runDir: join(recovery.podsDir, podId),
    };
    try {
      await recovery.host.driver.reap(undefined, plan);
    } catch (thrown) {
      recovery.log.error({ pod_id: podId, err: thrown }, "Cannot remove it");
    }
  }
}

function podDirectories(podsDir: string): PodId[] {
  let names: string[];
  try {
    names = readdirSync(podsDir);
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    try {
      return [parsePodId(name)];
    } catch {
      return [];
    }
  });
}
