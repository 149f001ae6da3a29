import { contains, familyOf, type Ip, ipOf } from "../../core/address.ts";
import { metadata4, metadata6 } from "../../core/special-addresses.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import { type Decision, relayPorts } from "../../policy/decide.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { Asked, Peer, ServedBackend, Step, TraceFacts } from "./facts.ts";
import { type GuestRoute, guestRoute } from "./guest-route.ts";
import { hostServes } from "./host-serves.ts";
import { towardService } from "./toward-service.ts";

/** The path of a packet: its steps up to the first that denies, and what becomes of it. */
export interface Trace {
  readonly steps: readonly Step[];
  /** `unknown` where a step is not podnet's to decide, and none denies. */
  readonly verdict: "allow" | "deny" | "unknown";
}

/**
 * Traces the first packet of a connection, in the order in which kernel and guest decide. Nothing
 * is sent; rules of other programs are not looked at. Pure.
 */
export function tracePath(asked: Asked, facts: TraceFacts): Trace {
  const steps: Step[] = [];
  for (const step of walk(asked, facts)) {
    steps.push(step);
    if (step.verdict === "deny") return { steps, verdict: "deny" };
  }
  const unknown = steps.some(({ verdict }) => verdict === "unknown");
  return { steps, verdict: unknown ? "unknown" : "allow" };
}

type Steps = Generator<Step, void>;

const pass = (step: string, text: string, rule = ""): Step => ({
  step,
  verdict: "pass",
  rule,
  text,
});
const deny = (step: string, rule: string, text: string): Step => ({
  step,
  verdict: "deny",
  rule,
  text,
});
const unknown = (step: string, text: string): Step => ({
  step,
  verdict: "unknown",
  rule: "",
  text,
});

/** A packet on its way, on a network of podnet. */
interface Sent extends Asked {
  readonly owner: FragmentKey;
  readonly source: Ip;
  readonly network: NetworkDefinition;
  /** The sender's port exchanges nothing with other isolated ports. */
  readonly isolated: boolean;
}

function* walk(asked: Asked, facts: TraceFacts): Steps {
  const { sender, ip } = asked;
  const own = sender.interfaces.flatMap(({ addresses }) => addresses.map(ipOf));
  if (ip !== undefined && own.includes(ip)) {
    yield pass("route", "stays in the guest");
    return;
  }
  const route = guestRoute(sender, ip);
  if (route === undefined) {
    yield deny("route", "no route", "the guest has no route there");
    return;
  }
  const { from, source, gateway } = route;
  yield pass("route", routeText(route));
  const network = facts.networks.find(({ name }) => name === from.network);
  if (network === undefined || source === undefined) {
    yield unknown("network", `beyond ${from.guestName} is no network of podnet's`);
    return;
  }
  yield guardStep(route, facts);
  const isolated = from.port?.isolated ?? network.isolated;
  const sent: Sent = { ...asked, owner: from.owner, source, network, isolated };
  const next = gateway ?? ip;
  const isHost = network.subnets.some((subnet) => ipOf(subnet.gateway) === next);
  if (isHost || next === undefined) {
    yield* throughHost(sent, facts);
    return;
  }
  yield* overBridge(sent, next, facts);
}

const routeText = ({ from, source, gateway }: GuestRoute): string =>
  `from ${source ?? "no address"} by ${from.guestName}${gateway === undefined ? ", on link" : ` via ${gateway}`}`;

function guardStep({ from }: GuestRoute, { firewall, guardLacking }: TraceFacts): Step {
  if (!firewall) return pass("guard", "no guard: disable_iptables");
  if (guardLacking.length > 0) return pass("guard", `not all in force: ${guardLacking.join("; ")}`);
  return from.port?.guard === false
    ? pass("guard", "the interface has no guard", "guard off")
    : pass("guard", "own MAC and address");
}

/** Frames to another port of the bridge. */
function* overBridge(sent: Sent, next: Ip, facts: TraceFacts): Steps {
  const { network, ip } = sent;
  const peer = facts.peerAt(network.name, next);
  if (peer === undefined) {
    yield deny("bridge", "no such address", `nothing on ${network.bridge} has ${next}`);
    return;
  }
  if (sent.isolated && peer.isolated) {
    yield deny("bridge", "isolated", `ports of ${network.name} exchange nothing`);
    return;
  }
  yield pass("bridge", `${network.bridge} to ${peer.text}`);
  if (next !== ip) {
    yield unknown("end", `${peer.text} is a router of its own`);
    return;
  }
  if (facts.firewall && facts.bridgedPass) yield* policies(sent, next, peer, facts);
  else if (facts.firewall)
    yield pass("policy", "frames on this bridge do not pass the host's rules: no policy decides");
  yield end(peer);
}

/** What the host receives, translates, and routes. */
function* throughHost(sent: Sent, facts: TraceFacts): Steps {
  const { ip, protocol, port, network } = sent;
  if (ip === undefined) {
    yield* outside(sent, facts);
    return;
  }
  const service = facts.firewall ? facts.serviceAt(network.name, ip) : undefined;
  if (service !== undefined) {
    yield* towardService(sent, service, (backend) => [...toBackend(sent, backend, facts)]);
    return;
  }
  const { hostRoute } = facts;
  if (hostRoute === undefined) {
    yield deny("host", "no route", "the host has no route there");
    return;
  }
  if (hostRoute.local) {
    const published = port === undefined ? undefined : facts.publishedAt(protocol, ip, port);
    if (published === undefined) {
      yield hostStep(sent, facts);
      return;
    }
    const { podIp, podPort, text } = published;
    yield pass("nat", `${text}: to ${podIp} port ${podPort}`, "published");
    yield* toPod({ ...sent, ip: podIp, port: podPort }, podIp, facts, true);
    return;
  }
  if (subnetOf(ip, facts) !== undefined) {
    yield* toPod(sent, ip, facts, false);
    return;
  }
  if (facts.firewall && network.cloudMetadata !== true && isMetadata(ip)) {
    yield deny("host", "cloud-metadata", "the cloud's metadata are not for pods");
    return;
  }
  yield* outside(sent, facts);
}

/** From a service to one of its backends: the kernel translates before it looks for a route. */
function* toBackend(sent: Sent, { ip, port }: ServedBackend, facts: TraceFacts): Steps {
  const translated = { ...sent, ip, port };
  // (Of other hosts' pods an overlay has the address.)
  if (subnetOf(ip, facts) === undefined || facts.elsewhere(ip) !== undefined) {
    yield* outside(translated, { ...facts, hostRoute: undefined });
    return;
  }
  yield* toPod(translated, ip, facts, false);
}

const isMetadata = (ip: Ip): boolean =>
  [metadata4, ...metadata6].some((cidr) => familyOf(cidr) === familyOf(ip) && contains(cidr, ip));

const subnetOf = (ip: Ip, { networks }: TraceFacts): NetworkDefinition | undefined =>
  networks.find(({ subnets }) =>
    subnets.some(({ cidr }) => familyOf(cidr) === familyOf(ip) && contains(cidr, ip)),
  );

function hostStep(sent: Sent, { firewall }: TraceFacts): Step {
  if (!firewall) return pass("host", "no rules: disable_iptables");
  const served = hostServes(sent.network, sent);
  return served === undefined
    ? deny("host", "host", "the host is closed to pods; see host_access of the network")
    : pass("host", "an address of the host itself", served);
}

/** To a pod or container here, by the host's rules. */
function* toPod(sent: Sent, ip: Ip, facts: TraceFacts, translated: boolean): Steps {
  const { network } = sent;
  const to = subnetOf(ip, facts);
  const peer = to && facts.peerAt(to.name, ip);
  if (to === undefined || peer === undefined) {
    yield deny("network", "no such address", `no pod or container has ${ip}`);
    return;
  }
  yield* policies(sent, ip, peer, facts);
  yield networkStep(sent, to, translated, facts);
  if (translated && to.name === network.name)
    yield pass("nat", `its answers come back by ${to.bridge}`, "hairpin");
  yield end(peer);
}

/** Whether a network takes packets of another one. */
function networkStep(
  { source, network }: Sent,
  to: NetworkDefinition,
  translated: boolean,
  { firewall }: TraceFacts,
): Step {
  if (!firewall) return pass("network", "no rules: disable_iptables");
  if (translated) return pass("network", `${to.name} takes what is published`, "published");
  if (to.name === network.name)
    return to.isolated
      ? deny("network", "isolated", `pods of ${to.name} do not reach each other`)
      : pass("network", "within its network");
  const admitted = (to.admit ?? []).find(
    (cidr) => familyOf(cidr) === familyOf(source) && contains(cidr, source),
  );
  return admitted === undefined
    ? deny("network", "networks", `${to.name} is closed to other networks`)
    : pass("network", `${to.name} admits ${admitted}`, "admit");
}

/** To other hosts of an overlay, or by an uplink. */
function* outside(sent: Sent, facts: TraceFacts): Steps {
  const { ip, network } = sent;
  const by = yield* policySteps("egress", sent.owner, sent, ip, facts);
  if (by === "name" && sent.protocol === "tcp" && relayPorts.includes(sent.port ?? 0)) {
    yield pass("relay", "connects to the name at addresses that the resolver gave the pod", "name");
    return;
  }
  const remote = ip === undefined ? undefined : facts.elsewhere(ip);
  if (remote !== undefined) {
    const { overlay, backend, publicIp, pod, silent } = remote;
    const to = `overlay ${overlay} by ${backend} to ${publicIp}${silent ? ", which is silent" : ""}`;
    yield pass("overlay", to);
    yield unknown("end", `${pod === undefined ? "its host" : `pod ${pod}`} decides there`);
    return;
  }
  const { hostRoute } = facts;
  const link = hostRoute === undefined ? "the host's route" : hostRoute.link;
  const via = hostRoute?.gateway === undefined ? "" : ` via ${hostRoute.gateway}`;
  yield pass("host", `leaves by ${link}${via}`);
  if (network.masquerade && facts.firewall)
    yield pass("nat", `with the address of ${link}`, "masquerade");
  yield pass("end", "has left this host");
}

const end = ({ text, absence }: Peer): Step =>
  absence === undefined
    ? pass("end", `has reached ${text}`)
    : deny("end", "not running", `${text} is ${absence}`);

/** The sender's policy about where to, and the receiver's about where from. */
function* policies(sent: Sent, ip: Ip, peer: Peer, facts: TraceFacts): Steps {
  yield* policySteps("egress", sent.owner, sent, ip, facts);
  yield* policySteps("ingress", peer.owner, sent, sent.source, facts);
}

/** Answers what the deciding rule looked at; undefined without a policy. */
function* policySteps(
  direction: "egress" | "ingress",
  owner: FragmentKey,
  { protocol, port, name }: Asked,
  other: Ip | undefined,
  { firewall, decide }: TraceFacts,
): Generator<Step, Decision["by"] | undefined> {
  if (!firewall) return undefined;
  const said = direction === "egress" && name !== undefined ? { name, answered: [name] } : {};
  const decision = decide(owner, direction, {
    protocol,
    ...(other === undefined ? {} : { ip: other }),
    ...(port === undefined ? {} : { port }),
    ...said,
  });
  if (decision === undefined) return undefined;
  const { verdict, policy, rule, reason, by } = decision;
  const step = { step: "policy", rule: `${policy}/${rule}`, text: `${direction}: ${reason}` };
  // Rules of addresses before it may match where the name leads.
  if (other === undefined && by !== "name")
    yield {
      ...step,
      verdict: "unknown",
      text: `${direction}: addresses decide; trace its address`,
    };
  else if (verdict === "relay")
    yield { ...step, verdict: "unknown", text: `${direction}: its name decides; trace the name` };
  else yield { ...step, verdict: verdict === "deny" ? "deny" : "pass" };
  return by;
}
