import type { Worker } from "./worker.ts";

/** The pod that runs alongside every case and must not notice. */
export const bystander = "bystander";
/** The pod that things happen to. */
export const subject = "subject";

/**
 * Longest a create may take that nothing holds up, milliseconds; with a boot in software emulation
 * on a busy machine.
 */
export const patientMs = 60_000;

export interface CreateHow {
  readonly timeoutMs?: number;
  /** As podnetd is configured unless given. */
  readonly factory?: "template";
}

export async function create(worker: Worker, name: string, how: CreateHow = {}): Promise<void> {
  const { timeoutMs = patientMs, factory } = how;
  const boot = factory === undefined ? {} : { boot: { factory } };
  await worker.client.pods.create({ spec: { name, ...boot }, timeoutMs });
}

export async function remove(worker: Worker, name: string): Promise<void> {
  await worker.client.pods.delete({ idOrName: name });
}

/** Starts of a podnetd that finds the machine too slow. */
const starts = 4;

/**
 * Starts podnetd, which has to come up; again if it says that something took longer than it may:
 * nothing here is held up.
 */
export async function started(worker: Worker, failpoints: readonly string[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const start = await worker.start(failpoints);
    if (start.kind === "ready") return;
    if (attempt === starts || !worker.log().includes('"code":"DEADLINE_EXCEEDED"'))
      throw new Error(`podnetd did not start (${start.how}):\n${worker.log()}`);
  }
}

export async function restart(worker: Worker, failpoints: readonly string[]): Promise<void> {
  await worker.kill();
  await started(worker, failpoints);
}

/** `podnet down`, and the end of podnetd after it. */
export async function goDown(worker: Worker): Promise<void> {
  await worker.client.node.down({});
  if ((await worker.ended()) === undefined) throw new Error("podnetd does not go down");
}
