import { PodnetError } from "../../../core/errors.ts";
import type { AttachPlan } from "../../../hypervisor/driver.ts";
import type { MachineKind } from "./kind.ts";

/** A machine of another program, to which a pod is attached. */
export const attachedTo = ({ qmp, channel, tty, type, accelerator }: AttachPlan): MachineKind => ({
  isOwn: false,
  hasConsole: false,
  guestIsUp: true,
  steps: {
    begin: { kind: "vm.attach" },
    // The guest is left as it is, and its NICs are unplugged.
    end: [{ kind: "guest.leave" }, { kind: "vm.release" }],
  },
  channels() {
    if (channel === undefined) throw new PodnetError("INTERNAL", "There is no agent to be reached");
    return { channelPath: channel, ttyPath: tty };
  },
  verifySocket: () => undefined,
  text: {
    claim: ({ podId, name }) => `pod ${podId} "${name}" in a foreign machine`,
    begin: ({ vcpu, memoryMib }) => ({
      title: "The foreign machine, which stays as it is",
      lines: [
        `QMP ${qmp}: ${type}, ${accelerator}, ${vcpu} vCPU, ${memoryMib} MiB`,
        ...(channel === undefined ? [] : [`channel ${channel}`]),
        ...(tty === undefined ? [] : [`tty ${tty}`]),
      ],
    }),
    hintWhenAbsent: (name) =>
      `Its addresses are kept until podnet detach ${name}; attach its next machine then`,
    hintWhenHeld: (name) =>
      `Give it another NIC: podnet interface add ${name}; or take all back: podnet detach ${name}`,
    cannot: ({ hasAgent }) => [
      "logs and console: podnet has the console only of a machine that it started",
      ...(tty !== undefined || !hasAgent
        ? []
        : ["exec and cp: the pod was attached without --tty"]),
    ],
  },
});
