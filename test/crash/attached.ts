import type { Acts } from "./acts.ts";
import type { Lane } from "./lane.ts";
import { subject } from "./pods.ts";

/** What gives a machine of somebody else NICs, and takes them back. */
export type AttachedChange = "attach" | "detach";

/** Attaches the lane's machine of somebody else. */
export async function attach(lane: Lane): Promise<void> {
  const { qmp, channel, tty } = await lane.others();
  const sockets = { qmpSocket: qmp, channelSocket: channel, ttySocket: tty };
  await lane.client.pods.attach({ spec: { name: subject }, ...sockets });
}

export const attachedChanges: Readonly<Record<AttachedChange, Acts>> = {
  attach: {
    stays: undefined,
    // It is looked at before anything is written down.
    from: "socket:connect monitor:before",
    prepare: (lane) => lane.others(),
    change: attach,
  },
  detach: {
    stays: undefined,
    from: "commit:deleting:before",
    prepare: attach,
    change: ({ client }) => client.pods.detach({ idOrName: subject }),
  },
};
