import type { Acts } from "./acts.ts";
import type { Worker } from "./worker.ts";
import { subject } from "./pods.ts";

/** What gives a foreign machine NICs, and takes them back. */
export type AttachedChange = "attach" | "detach";

/** Attaches the worker's foreign machine. */
export async function attach(worker: Worker): Promise<void> {
  const { qmp, channel, tty } = await worker.others();
  const sockets = { qmpSocket: qmp, channelSocket: channel, ttySocket: tty };
  await worker.client.pods.attach({ spec: { name: subject }, ...sockets });
}

export const attachedChanges: Readonly<Record<AttachedChange, Acts>> = {
  attach: {
    stays: undefined,
    // It is looked at before anything is written down.
    from: "socket:connect monitor:before",
    prepare: (worker) => worker.others(),
    change: attach,
  },
  detach: {
    stays: undefined,
    from: "commit:deleting:before",
    prepare: attach,
    change: ({ client }) => client.pods.detach({ idOrName: subject }),
  },
};
