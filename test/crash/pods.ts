import type { Lane } from "./lane.ts";

/** The pod that runs beside every case and must not notice. */
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

export async function create(lane: Lane, name: string, how: CreateHow = {}): Promise<void> {
  const { timeoutMs = patientMs, factory } = how;
  const boot = factory === undefined ? {} : { boot: { factory } };
  await lane.client.pods.create({ spec: { name, ...boot }, timeoutMs });
}

export async function remove(lane: Lane, name: string): Promise<void> {
  await lane.client.pods.delete({ idOrName: name });
}

/** Starts of a podnetd that finds the machine too slow. */
const starts = 4;

/**
 * Starts podnetd, which has to come up; again if it says that something took longer than it may:
 * nothing here is held up.
 */
export async function started(lane: Lane, failpoints: readonly string[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const start = await lane.start(failpoints);
    if (start.kind === "ready") return;
    if (attempt === starts || !lane.log().includes('"code":"DEADLINE_EXCEEDED"'))
      throw new Error(`podnetd did not start (${start.how}):\n${lane.log()}`);
  }
}

export async function restart(lane: Lane, failpoints: readonly string[]): Promise<void> {
  await lane.kill();
  await started(lane, failpoints);
}

/** `podnet down`, and the end of podnetd after it. */
export async function goDown(lane: Lane): Promise<void> {
  await lane.client.node.down({});
  if ((await lane.ended(30_000)) === undefined) throw new Error("podnetd does not go down");
}
