import { agentFeatures, type ObservedGuest } from "../../../guest-init/protocol/configure.ts";
import type { GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { PodPlan } from "../store/pod-plan.ts";

/** Who answers in a guest, and what cannot be done with it, for people. */
export interface GuestKind {
  readonly kind: "podnet" | "hyperstart" | "none";
  readonly cannot: readonly string[];
}

const hyperstart: GuestKind = {
  kind: "hyperstart",
  cannot: [
    "IPv6: a hyperstart takes no such addresses, routes or nameservers; of a network with both it has the IPv4 address alone",
    "addresses of lo: it sets none",
    "route metrics: it sets none",
    "templates: clones of it would share randomness and clock, for which it has no command",
    "more than 56 KiB of input for a program of podnet exec -i: what the program has not read would be lost; podnet cp brings more",
    "the end of a program that a signal killed: it says that such a program ended with 0",
    "name and nameservers for podnet exec: it writes them to /tmp/hyper, for containers alone",
    "routes of its own that survive a change: an interface that is changed goes down for a moment",
  ],
};

/** By who it said it is, and what it said it has. */
export function guestKind(
  { extension, features = [] }: GuestIdentity,
  observed?: ObservedGuest,
): GuestKind {
  if (extension === undefined) return hyperstart;
  const lacking = (feature: string, what: string): string[] =>
    features.includes(feature) ? [] : [what];
  return {
    kind: "podnet",
    cannot: [
      ...lacking(agentFeatures.loopback, "addresses of lo: the agent is of an earlier podnet"),
      ...lacking(
        agentFeatures.attributes,
        "of links of CNI plugins: no ARP, and routes' source, MTU and advmss: the agent is of an earlier podnet",
      ),
      ...lacking(
        agentFeatures.awake,
        "templates: the agent is not the guest's init, or of an earlier podnet",
      ),
      ...(observed?.resolverKept === undefined
        ? []
        : [
            `nameservers: /etc/resolv.conf cannot be written (${observed.resolverKept}), and is as the image has it`,
          ]),
    ],
  };
}

/** Nobody in the guest is spoken to. */
export const nobody: GuestKind = {
  kind: "none",
  cannot: [
    "exec and cp: no agent in the guest runs programs",
    "read-back: what the guest made of its network is not known here",
    "changes of an interface: the guest cannot be told; add and remove can",
    "addresses of lo: nobody sets them",
  ],
};

/** What podnet cannot do because it did not start the pod's machine; nothing of a machine that it started. */
export const attachedCannot = ({ vm: { attached }, agent }: PodPlan): readonly string[] =>
  attached === undefined
    ? []
    : [
        "logs and console: podnet has the console only of a machine that it started",
        ...(attached.tty !== undefined || agent === "none"
          ? []
          : ["exec and cp: the pod was attached without --tty"]),
      ];
