import type { MachineKind } from "./kind.ts";
import { shellWord } from "./shell-word.ts";

/** A machine that podnet starts for the pod. */
export const own: MachineKind = {
  isOwn: true,
  hasConsole: true,
  guestIsUp: false,
  steps: {
    begin: { kind: "vm.start" },
    end: [{ kind: "guest.power-off" }, { kind: "vm.stop" }],
  },
  channels: (vm) => ({ channelPath: vm.socketPath("channel"), ttyPath: vm.socketPath("tty") }),
  verifySocket: (vm) => vm.socketPath("verify"),
  text: {
    claim: ({ podId, name }, { vcpu, memoryMib, runDir }) =>
      `pod ${podId} "${name}" with ${vcpu} vCPU and ${memoryMib} MiB in ${runDir}`,
    begin: (vm, { command, restore }) => {
      const line = command(vm).map(shellWord).join(" ");
      if (vm.factory === undefined) return { title: "The machine", lines: [line] };
      return {
        title: "The machine, a clone; descriptor 3 is the memory of its template (QMP)",
        lines: [line, ...restore()],
      };
    },
    hintWhenAbsent: () => "Start the pod again, with the same addresses, or delete it",
    hintWhenHeld: (name) => `Give it another NIC: podnet interface add ${name}`,
    cannot: () => [],
  },
};
