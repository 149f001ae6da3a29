import { setTimeout as delay } from "node:timers/promises";
import { DiskState, type Pod, PodState as State } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { learned, unreadable } from "./audit.ts";
import { type Change, changes, extra, networkText, podText, whole } from "./changes.ts";
import { recorded, unhealthy } from "./inspect.ts";
import type { Worker } from "./worker.ts";
import { judged, type Outcome, type Visit } from "./outcome.ts";
import { bystander, remove, restart, started, subject } from "./pods.ts";
import { policedChanges, policy } from "./policed.ts";
import { halfServed, isServiceChange, endService } from "./services.ts";

/** Longest that what failed may take to be put right, milliseconds. */
const deadlineMs = 20_000;

/**
 * A change of a pod that runs, or of the node's networks. Whatever comes of it, it is there wholly
 * or not at all.
 */
export async function visitChange(how: Visit, change: Change): Promise<Outcome> {
  const { worker, visited, next } = how;
  const problems: string[] = [];
  await changes[change].prepare(worker);
  await changes[change].change(worker).catch((thrown: unknown) => {
    if (!isPodnetError(thrown)) throw thrown;
    // A channel whose frame fails is closed, and that is reported.
    if (visited.action !== "error" || visited.point.startsWith("channel:")) return;
    if (!`${thrown.message} ${worker.log()}`.includes("Injected failure"))
      problems.push(`podnetd does not report the failure but of ${thrown.message}`);
  });
  const killed = visited.action === "kill";
  const reached = killed
    ? (await worker.ended(5000)) !== undefined
    : worker.record().includes(visited.point);
  if (reached && !killed) problems.push(...(await looked(how, change, "before the restart", true)));
  await worker.kill();
  await started(worker, []);
  // (What was looked at before the restart has been deleted.)
  problems.push(...(await looked(how, change, "after the restart", killed || !reached)));
  await restart(worker, next);
  return reached ? judged(problems, worker) : { kind: "unreached" };
}

/**
 * Looks at everything, and removes what the case has made. `there`: the case has not been looked
 * at yet.
 */
export async function looked(
  { worker, baselines }: Visit,
  change: Change,
  when: string,
  there: boolean,
): Promise<readonly string[]> {
  const problems: string[] = [];
  const pods = await converged(worker);
  // (A pod is not as verified before its policy is in force again.)
  if (repairs(change)) await differences(worker, change);
  if (change === "learn") await learned(worker);
  for (const found of pods) {
    // What could not be taken back says so, and is taken back when it is asked for again, below.
    if (change === "detach" && found.state === State.FAILED) continue;
    const pod = await again(worker, found);
    if (pod.vm?.attached === true) problems.push(...(await worker.amiss(true)));
    problems.push(...(await unhealthy(worker, pod)), ...unlikeItsRow(pod));
    const is = podText(change, pod);
    if (pod.name === subject && !whole[change].includes(is)) problems.push(`${subject} has ${is}`);
  }
  if (!pods.some(({ name }) => name === bystander)) problems.push("the bystander is gone");
  const { networks } = await worker.client.networks.list({});
  for (const network of networks.filter(({ name }) => name === extra)) {
    const is = networkText(network);
    if (!whole[change].includes(is)) problems.push(`${extra} has ${is}`);
  }
  const { stays } = changes[change];
  if (there && stays === "pod" && !pods.some(({ name }) => name === subject))
    problems.push("the subject is gone, and its addresses with it");
  if (there && stays === "network" && !networks.some(({ name }) => name === extra))
    problems.push("the network is gone");
  const { drift, parts } = await differences(worker, change);
  if (drift) problems.push(JSON.stringify(parts.filter(({ found }) => found.length > 0)));
  if (isServiceChange(change)) {
    if (there) problems.push(...(await halfServed(worker, change)));
    await endService(worker);
  }
  await remove(worker, subject);
  await worker.client.networks.delete({ name: extra });
  await worker.client.policies.delete({ name: policy });
  problems.push(...(await worker.amiss(false)), ...unreadable(worker));
  const left = await worker.changes(baselines.withBystander, recorded(pods));
  problems.push(...left.filter((line) => !tables.test(line)));
  return problems.map((problem) => `${when}: ${problem}`);
}

/** A change that is stored first, and tried again by podnetd where the host refuses it. */
const repairs = (change: Change): boolean => change in policedChanges || isServiceChange(change);

async function differences({ client }: Worker, change: Change) {
  for (const deadline = performance.now() + deadlineMs; ; await delay(50)) {
    const found = await client.node.diff({});
    if (!found.drift || !repairs(change) || performance.now() > deadline) return found;
  }
}

/** What the first rule of IPv6 brings: the tables that ip6tables-nft makes for whoever asks it. */
const tables = /^\+ ip6?tables-nft (?:\*\w+|:\w+ ACCEPT|COMMIT)$/;

/** Interfaces whose state in the guest differs from the pod's row. */
const unlikeItsRow = ({ name, interfaces, guest }: Pod): readonly string[] =>
  interfaces
    // A guest without an agent reports nothing.
    .filter(() => guest?.kind !== "none")
    .filter(
      ({ addresses, observedAddresses, mtu, observedMtu }) =>
        observedAddresses.join() !== addresses.join() || observedMtu !== mtu,
    )
    .map(
      ({ guestName, observedAddresses, observedMtu }) =>
        `${name}: the guest has ${observedAddresses.join(" ")} mtu ${observedMtu} at ${guestName}`,
    );

/** Pods, once what was under way or is tried again is over. */
async function converged({ client }: Worker): Promise<readonly Pod[]> {
  const passing: readonly State[] = [State.CREATING, State.DELETING, State.STOPPING];
  for (const deadline = performance.now() + deadlineMs; ; await delay(50)) {
    const { pods } = await client.pods.list({});
    const over = pods.every(
      (pod) =>
        !passing.includes(pod.state) &&
        (pod.state !== State.RUNNING ||
          (pod.reason === "" &&
            unlikeItsRow(pod).length === 0 &&
            pod.disks.every(({ state }) => state === DiskState.PLUGGED))),
    );
    if (over || performance.now() > deadline) return pods;
  }
}

/** A pod that runs, whichever state a change of its state has left it in. */
async function again({ client }: Worker, pod: Pod): Promise<Pod> {
  const idOrName = pod.name;
  // Its owner starts it and lets it run.
  if (pod.vm?.attached === true) return pod;
  if (pod.state === State.PAUSED) return (await client.pods.resume({ idOrName })).pod ?? pod;
  if (pod.state === State.STOPPED || pod.state === State.FAILED)
    return (await client.pods.start({ idOrName })).pod ?? pod;
  return pod;
}
