import { setTimeout as delay } from "node:timers/promises";
import { type Pod, PodState as State } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn } from "../vm/daemon-rig.ts";
import { armedDelete } from "./arming.ts";
import type { Worker } from "./worker.ts";
import type { Outcome, Visit } from "./outcome.ts";
import { bystander, remove, restart, started, subject } from "./pods.ts";

/** Longest that what failed may take to be put right, milliseconds. */
const deadlineMs = 10_000;

export interface Expected {
  /** The failpoints that podnetd is armed with. */
  readonly next?: readonly string[];
  /** An undo or a start that failed leaves a pod that says so, and can be deleted. */
  readonly mayHaveFailed?: boolean;
  /** The subject has run before, and is never lost: if it has failed it can be started. */
  readonly stays?: boolean;
}

/**
 * The bystander runs, and the subject runs as well or is not there at all; without it all is as it
 * was. A subject that runs is compared with independent sources and reached, and then deleted;
 * one that failed is deleted too.
 */
export async function inspect(
  { worker, baselines }: Pick<Visit, "worker" | "baselines">,
  when: string,
  { next = [], mayHaveFailed = false, stays = false }: Expected,
): Promise<string[]> {
  const problems: string[] = [];
  const pods = await readyPods(worker);
  for (const pod of pods) {
    const failed = pod.name === subject && pod.state === State.FAILED;
    if (failed && stays) problems.push(...(await startable(worker, pod)));
    else if (!failed || !mayHaveFailed) problems.push(...(await unhealthy(worker, pod)));
  }
  const there = (name: string): boolean => pods.some((pod) => pod.name === name);
  if (!there(bystander)) problems.push("the bystander is gone");
  if (stays && !there(subject)) problems.push("the subject is gone, and its addresses with it");
  await clear(worker, there(subject), next);
  problems.push(...(await worker.changes(baselines.withBystander, recorded(pods))));
  return problems.map((problem) => `${when}: ${problem}`);
}

/**
 * The pods, once what failed has been tried again: an end that could not be written down is, a
 * moment later.
 */
async function readyPods({ client }: Worker): Promise<readonly Pod[]> {
  for (const deadline = performance.now() + deadlineMs; ; await delay(50)) {
    const { pods } = await client.pods.list({});
    const passing = pods.some(({ state }) => state === State.CREATING || state === State.DELETING);
    if (!passing || performance.now() > deadline) return pods;
  }
}

/** The host learns the bystander's address as soon as it is spoken to. */
export const recorded = (pods: readonly Pod[]): string[] =>
  pods
    .filter(({ name }) => name === bystander)
    .map(addressOf)
    .map((address) => `neighbour dst="${address}"`);

/** Deletes the subject, by a podnetd that is not armed for the next delete. */
async function clear(worker: Worker, there: boolean, next: readonly string[]): Promise<void> {
  const disarm = there && next.includes(armedDelete);
  if (disarm) await restart(worker, []);
  await remove(worker, subject);
  if (disarm) await restart(worker, next);
}

/** Goes on to the next case all the same. */
export async function unreached({ worker, next }: Visit): Promise<Outcome> {
  await worker.kill();
  await started(worker, []);
  await clear(worker, true, []);
  await restart(worker, next);
  return { kind: "unreached" };
}

async function startable(worker: Worker, failed: Pod): Promise<string[]> {
  const { pod } = await worker.client.pods.start({ idOrName: failed.name });
  if (pod === undefined) return [`${failed.name} is lost by its start`];
  const moved = addressOf(pod) === addressOf(failed) ? [] : [`${pod.name} has lost its address`];
  return [...moved, ...(await unhealthy(worker, pod))];
}

/**
 * What is wrong with what a guest says. A machine that stands in asks for nothing by itself:
 * without an agent it is silent.
 */
async function silent(worker: Worker, pod: Pod): Promise<string[]> {
  if (pod.guest?.kind === "none") return [];
  const { output } = await execIn(worker.client, pod.name, "echo", "here");
  await worker.lab.host.ping(addressOf(pod));
  return output === "here\n" ? [] : [`${pod.name} says ${JSON.stringify(output)}`];
}

export async function unhealthy(worker: Worker, pod: Pod): Promise<string[]> {
  const { name } = pod;
  if (pod.state !== State.RUNNING)
    return [`${name} is in state ${pod.state} instead of running: ${pod.reason}`];
  const echoed = await silent(worker, pod);
  if (name === bystander) return echoed;
  const { ok, checks } = await worker.client.pods.verify({ idOrName: name });
  const differing = checks.filter((check) => !check.ok);
  return ok
    ? echoed
    : [
        ...echoed,
        ...differing.map(
          ({ subject: of, wanted, found }) => `${name}: ${of} is ${found} instead of ${wanted}`,
        ),
      ];
}
