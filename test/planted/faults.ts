import type { Fault } from "./fault.ts";
import { agentsFaults } from "./faults/agents.ts";
import { attachedFaults } from "./faults/attached.ts";
import { attachmentFaults } from "./faults/attachments.ts";
import { callersFaults } from "./faults/callers.ts";
import { channelFaults } from "./faults/channel.ts";
import { containerFaults } from "./faults/containers.ts";
import { copyFaults } from "./faults/copy.ts";
import { crashFaults } from "./faults/crash.ts";
import { driftFaults } from "./faults/drift.ts";
import { egressFaults } from "./faults/egress.ts";
import { firewallFaults } from "./faults/firewall.ts";
import { guardFaults } from "./faults/guard.ts";
import { guestsFaults } from "./faults/guests.ts";
import { hostGuardFaults } from "./faults/host-guard.ts";
import { hyperdFaults } from "./faults/hyperd.ts";
import { imagesFaults } from "./faults/images.ts";
import { jailFaults } from "./faults/jail.ts";
import { commandLineFaults } from "./faults/command-line.ts";
import { lifecycleFaults } from "./faults/lifecycle.ts";
import { limitsFaults } from "./faults/limits.ts";
import { liveTraceFaults } from "./faults/live-trace.ts";
import { mainProcessFaults } from "./faults/main-process.ts";
import { memoryFaults } from "./faults/memory.ts";
import { namesFaults } from "./faults/names.ts";
import { networkFaults } from "./faults/network.ts";
import { networksFaults } from "./faults/networks.ts";
import { nftablesFaults } from "./faults/nftables.ts";
import { overlayFaults } from "./faults/overlay.ts";
import { overlayHostsFaults } from "./faults/overlay-hosts.ts";
import { overlayKubeFaults } from "./faults/overlay-kube.ts";
import { peersFaults } from "./faults/peers.ts";
import { policyFaults } from "./faults/policy.ts";
import { policyEffectsFaults } from "./faults/policy-effects.ts";
import { portsFaults } from "./faults/ports.ts";
import { learningFaults } from "./faults/learning.ts";
import { inlineRulesFaults } from "./faults/inline-rules.ts";
import { podPoliciesFaults } from "./faults/pod-policies.ts";
import { podsFaults } from "./faults/pods.ts";
import { podsOnCniFaults } from "./faults/pods-on-cni.ts";
import { promisedFaults } from "./faults/promised.ts";
import { qemuFaults } from "./faults/qemu.ts";
import { ratesFaults } from "./faults/rates.ts";
import { recoveryFaults } from "./faults/recovery.ts";
import { dataDiskFaults } from "./faults/data-disks.ts";
import { roomFaults } from "./faults/room.ts";
import { servicesFaults } from "./faults/services.ts";
import { stateFaults } from "./faults/state.ts";
import { sandboxContainerFaults } from "./faults/sandbox-containers.ts";
import { templatesFaults } from "./faults/templates.ts";
import { tunnelFaults } from "./faults/tunnels.ts";
import { verifyGuardFaults } from "./faults/verify-guard.ts";

/**
 * Faults that an engineer could make tomorrow — a step of the undo forgotten, a lock, a check of a
 * length, a release — each with the test that has to notice it.
 */
export const faults: readonly Fault[] = [
  ...servicesFaults,
  ...liveTraceFaults,
  ...verifyGuardFaults,
  ...policyEffectsFaults,
  ...learningFaults,
  ...inlineRulesFaults,
  ...podPoliciesFaults,
  ...podsFaults,
  ...podsOnCniFaults,
  ...hostGuardFaults,
  ...policyFaults,
  ...promisedFaults,
  ...portsFaults,
  ...ratesFaults,
  ...recoveryFaults,
  ...roomFaults,
  ...dataDiskFaults,
  ...stateFaults,
  ...memoryFaults,
  ...networkFaults,
  ...networksFaults,
  ...attachmentFaults,
  ...containerFaults,
  ...namesFaults,
  ...egressFaults,
  ...firewallFaults,
  ...nftablesFaults,
  ...driftFaults,
  ...qemuFaults,
  ...imagesFaults,
  ...mainProcessFaults,
  ...jailFaults,
  ...templatesFaults,
  ...channelFaults,
  ...agentsFaults,
  ...attachedFaults,
  ...guestsFaults,
  ...guardFaults,
  ...limitsFaults,
  ...commandLineFaults,
  ...lifecycleFaults,
  ...callersFaults,
  ...sandboxContainerFaults,
  ...hyperdFaults,
  ...copyFaults,
  ...crashFaults,
  ...overlayFaults,
  ...overlayHostsFaults,
  ...overlayKubeFaults,
  ...peersFaults,
  ...tunnelFaults,
];
