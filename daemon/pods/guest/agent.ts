import type { GuestIdentity } from "../../../guest-init/channel/guest.ts";
import { agentFeatures, type ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import type { GuestKind } from "./kind.ts";

/**
 * A guest that runs podnet's agent, or a hyperstart: unless the pod names one, either may answer.
 */
export const agent: GuestKind = {
  name: "podnet",
  hasAgent: true,
  takesIpv6: true,
  needsNicsFirst: false,
  hasPowerButton: false,
  choosesLinkLocal: false,
  followsServers: true,
  showsServers: true,
  channel: {},
  steps: {
    boot: [{ kind: "guest.ready" }],
    shares: [{ kind: "guest.mount" }],
    files: [{ kind: "guest.write" }],
    configure: [{ kind: "guest.configure" }],
    plugged: () => [],
    verify: [{ kind: "guest.verify" }],
  },
  text: {
    configureTitle: "Sent to the guest, with the time and fresh randomness",
    configureLines: (guest) => [`configure ${JSON.stringify(guest)}`],
    cannot: cannotOf,
  },
  refuse: () => {},
  refuseDecided: () => {},
  refuseChange: () => {},
  world: (snapshot) => snapshot,
  // The agent is sent its network.
  lease: () => undefined,
  dns: (offered) => offered,
  // The agent configures the network, so the seed disk disables cloud-init's.
  seedFiles: () => ({ "network-config": `${JSON.stringify({ config: "disabled" })}\n` }),
  // The agent's answer has been compared with the plan.
  isConfigured: () => true,
};

function cannotOf(
  { features = [] }: Partial<GuestIdentity> = {},
  observed?: ObservedGuest,
): readonly string[] {
  const lacking = (feature: string, what: string): string[] =>
    features.includes(feature) ? [] : [what];
  return [
    ...lacking(agentFeatures.loopback, "addresses of lo: the agent is of an earlier podnet"),
    ...lacking(
      agentFeatures.attributes,
      "of links of CNI plugins: no ARP, and routes' source, MTU and advmss: the agent is of an earlier podnet",
    ),
    ...lacking(agentFeatures.files, "files: the agent is of an earlier podnet"),
    ...lacking(agentFeatures.shares, "shares: the agent is of an earlier podnet"),
    ...lacking(
      agentFeatures.awake,
      "templates: the agent is not the guest's init, or of an earlier podnet",
    ),
    ...(observed?.resolverKept === undefined
      ? []
      : [
          `nameservers: /etc/resolv.conf cannot be written (${observed.resolverKept}), and is as the image has it`,
        ]),
  ];
}
