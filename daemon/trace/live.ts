import { familyOf, type Ip, ipOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { TracedHeader, TraceMessage } from "../../linux/nftrace/message.ts";
import type { FlowTrace, TracedFlow } from "../../network/firewall/flow-trace.ts";
import { entryAt } from "../../network/firewall/nftables/policy-table.ts";
import type { RuleText } from "../../network/firewall/rule-texts.ts";
import { denial, standsFor } from "../../network/firewall/stands-for.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import type { Asked } from "./facts.ts";
import { ownerAt, type TraceParts } from "./gather.ts";
import { guestRoute } from "./guest-route.ts";
import type { SenderInterface } from "./sender.ts";
import { type PacketMessages, TracedPackets } from "./traced-packets.ts";

/** A rule that a packet matched, or the policy of a chain. */
interface RuleMet {
  /** Family and name. */
  readonly table: string;
  readonly chain: string;
  readonly rule: string;
  readonly verdict: string;
  /** Empty for rules of other programs. */
  readonly standsFor: string;
}

export interface TracedPacket {
  /** `tcp 192.168.123.2:40112 to 192.0.2.7:443`, as the guest sent it. */
  readonly packet: string;
  readonly rules: readonly RuleMet[];
  readonly verdict: "accept" | "drop";
}

export interface LiveTrace {
  readonly from: SenderInterface;
  readonly flow: Omit<TracedFlow, "packets">;
}

/** What ends a trace. */
export interface LiveBounds {
  readonly packets: number;
  readonly timeoutMs: number;
}

type Parts = Pick<
  TraceParts,
  "config" | "network" | "policies" | "addresses" | "networks" | "records"
>;

/** Milliseconds without a word of the kernel after which a packet has come to its end. */
const quietMs = 250;
/** Milliseconds between looks, where nothing wakes this. */
const lookMs = 1000;

/** The flow that a sender's packets are. Throws `INVALID_ARGUMENT`. Pure. */
export function liveTraceOf({ sender, ip, protocol, port }: Asked): LiveTrace {
  if (ip === undefined)
    throw noFlow(
      "A live trace is of one address",
      "Ask for the name in the guest (podnet exec POD -- nslookup NAME), and give the address",
    );
  const route = guestRoute(sender, ip);
  const own = sender.interfaces.flatMap(({ addresses }) => addresses.map(ipOf));
  if (route === undefined || own.includes(ip))
    throw noFlow(`Packets of ${sender.text} to ${ip} do not leave it`, "See podnet trace");
  const { from } = route;
  const sources = from.addresses.map(ipOf).filter((each) => familyOf(each) === familyOf(ip));
  if (from.bridge === undefined || from.link === undefined || sources.length === 0)
    throw noFlow(
      `${from.guestName} of ${sender.text} has no port on a bridge of this host, or no address`,
      "Only packets by a bridge are traced: see podnet capture",
    );
  const flow = { link: from.link, sources, destination: ip, protocol };
  return { from, flow: port === undefined ? flow : { ...flow, port } };
}

const noFlow = (message: string, hint: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, { field: "destination", hint });

/**
 * Traces the next packets of a flow as the kernel decides about them: undefined once it does so,
 * then each packet. Whatever ends this, nothing of it stays on the host. Throws `CANCELLED`,
 * `FIREWALL_FAILED`, `NETLINK_FAILED`, `SYSCALL_FAILED`.
 */
export async function* traceLive(
  parts: Parts,
  { from, flow }: LiveTrace,
  { packets, timeoutMs }: LiveBounds,
  signal: AbortSignal,
): AsyncGenerator<TracedPacket | undefined> {
  using trace = await parts.network.observe.traceFlow({ ...flow, packets });
  const endsAtMs = performance.now() + timeoutMs;
  yield undefined;
  const traced = new TracedPackets(trace.table);
  for (let left = packets, heardMs = 0; left > 0; ) {
    const now = performance.now();
    const isOver = now >= endsAtMs;
    if (isOver || (traced.count > 0 && now - heardMs >= quietMs))
      for (const each of traced.take().slice(0, left)) {
        yield await described(parts, trace, each, from.owner, signal);
        left--;
      }
    if (isOver || left === 0) return;
    const waitMs = Math.min(traced.count > 0 ? quietMs : lookMs, endsAtMs - now);
    for (const message of await trace.next(waitMs, signal))
      if (traced.add(message)) heardMs = performance.now();
  }
}

async function described(
  parts: Parts,
  trace: FlowTrace,
  { sent, messages }: PacketMessages,
  sender: FragmentKey,
  signal: AbortSignal,
): Promise<TracedPacket> {
  const chains = new Map<string, ReadonlyMap<bigint, RuleText>>();
  const rules: RuleMet[] = [];
  let destination = sent?.destination;
  for (const message of messages) {
    destination = message.packet?.destination ?? destination;
    const { family, table, chain, handle, isPolicy } = message;
    // The end of a chain decides by its policy alone.
    if (handle === undefined && !isPolicy) continue;
    const name = `${family} ${table} ${chain}`;
    if (handle !== undefined && !chains.has(name))
      chains.set(name, await trace.rulesOf({ family, table, chain }, signal));
    const owners = [sender, receiver(parts, destination)];
    const one = met(parts, message, chains.get(name), owners);
    const before = rules.at(-1)?.standsFor;
    rules.push(
      one.standsFor === denial && before !== undefined ? { ...one, standsFor: before } : one,
    );
  }
  const isDropped = messages.some(({ verdict }) => verdict === "drop");
  return { packet: textOf(sent), rules, verdict: isDropped ? "drop" : "accept" };
}

const receiver = (parts: Parts, ip: Ip | undefined): FragmentKey | undefined =>
  ip === undefined ? undefined : ownerAt(parts, ip);

function met(
  { config, policies }: Parts,
  { family, table, chain, handle, verdict, target, mark }: TraceMessage,
  rules: ReadonlyMap<bigint, RuleText> | undefined,
  owners: readonly (FragmentKey | undefined)[],
): RuleMet {
  const rule = handle === undefined ? undefined : rules?.get(handle);
  const name = `${family} ${table}`;
  const entryOf = (of: string, place: number): string | undefined => {
    for (const owner of owners) {
      const decisions = owner === undefined ? undefined : policies.decisionsOf(owner);
      const found = decisions && entryAt(decisions, config.relayPort, of, place);
      if (found !== undefined) return `${found.policy}/${found.rule}`;
    }
    return undefined;
  };
  return {
    table: name,
    chain,
    rule: handle === undefined ? "policy" : (rule?.text ?? `a rule that is gone, handle ${handle}`),
    verdict: target === undefined ? verdict : `${verdict} ${target}`,
    standsFor:
      rule === undefined
        ? ""
        : standsFor({ ...rule, table: name, ...(mark === undefined ? {} : { mark }) }, entryOf),
  };
}

const protocolNames: Readonly<Record<number, string>> = {
  1: "icmp",
  6: "tcp",
  17: "udp",
  58: "icmpv6",
  132: "sctp",
};

function textOf(sent: TracedHeader | undefined): string {
  if (sent === undefined) return "a packet";
  const { protocol, source, sourcePort, destination, destinationPort } = sent;
  const at = (ip: Ip, port: number | undefined): string => {
    if (port === undefined) return ip;
    return familyOf(ip) === 6 ? `[${ip}]:${port}` : `${ip}:${port}`;
  };
  const name = protocolNames[protocol] ?? `protocol ${protocol}`;
  return `${name} ${at(source, sourcePort)} to ${at(destination, destinationPort)}`;
}
