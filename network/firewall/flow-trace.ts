import { randomBytes } from "node:crypto";
import { familyOf, type Ip } from "../../core/address.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { Nftables } from "../../linux/nftables/libnftables.ts";
import type { TraceMessage } from "../../linux/nftrace/message.ts";
import type { Protocol } from "../../policy/model.ts";
import type { HostKernel } from "../kernel/kernel.ts";
import { type ChainPlace, type RuleText, ruleTexts } from "./rule-texts.ts";

/** What a guest sends to one destination. */
export interface TracedFlow {
  /** The guest's port on its bridge. */
  readonly link: IfName;
  /** The guest's addresses there, of the destination's family. */
  readonly sources: readonly Ip[];
  readonly destination: Ip;
  readonly protocol: Protocol;
  /** Absent: every port, and of ICMP echo requests. */
  readonly port?: number;
  /** Traced at most. */
  readonly packets: number;
}

/** Before the guard, which is the first of our own. */
const priority = -350;

/**
 * The commands that have the kernel trace a flow. The table belongs to the socket that makes it: it
 * goes with the socket, however podnetd ends, and no other program can change it (`flags owner`,
 * Linux 5.12). The limit lets so many packets by and then one a day: a flood costs podnetd nothing.
 * Pure.
 */
function traceCommands(
  table: string,
  { link, sources, destination, protocol, port, packets }: TracedFlow,
): readonly string[] {
  const ip = familyOf(destination) === 4 ? "ip" : "ip6";
  const echo = ip === "ip" ? "icmp type 8" : "icmpv6 type 128";
  const service = port === undefined ? `meta l4proto ${protocol}` : `${protocol} dport ${port}`;
  const match = [
    `iifname "${link}"`,
    `${ip} saddr { ${[...new Set(sources)].join(", ")} }`,
    `${ip} daddr ${destination}`,
    protocol === "icmp" ? echo : service,
  ];
  const action = `limit rate 1/day burst ${packets} packets meta nftrace set 1`;
  return [
    `add table ${table} { flags owner; }`,
    `add chain ${table} arriving { type filter hook prerouting priority ${priority}; policy accept; }`,
    `add rule ${table} arriving ${match.join(" ")} ${action}`,
  ];
}

/** How the tables of live traces are called; the rest differs between two at once. */
const traceTablePrefix = "podnet_trace_";

/** A flow whose packets the kernel traces, until this is disposed. */
export interface FlowTrace extends Disposable {
  /** The name of its table, which its own messages have. */
  readonly table: string;
  /** As `TraceStream.next`: of all packets that are traced on this host. */
  next(waitMs: number, signal: AbortSignal): Promise<readonly TraceMessage[]>;
  /** As `ruleTexts`. */
  rulesOf(place: ChainPlace, signal: AbortSignal): Promise<ReadonlyMap<bigint, RuleText>>;
}

/** Throws `FIREWALL_FAILED`, `SYSCALL_FAILED`. */
export async function openFlowTrace(
  kernel: Pick<HostKernel, "nftables" | "openTrace" | "iptables" | "ip6tables">,
  flow: TracedFlow,
): Promise<FlowTrace> {
  const table = `${traceTablePrefix}${randomBytes(4).toString("hex")}`;
  using opened = new DisposableStack();
  const stream = opened.use(kernel.openTrace());
  const open = (): Nftables =>
    opened.adopt(kernel.nftables.open(), (nftables) => {
      nftables.close();
    });
  // Its socket makes the table, and nothing else: libnftables may open it again for a listing.
  await made(open(), traceCommands(`bridge ${table}`, flow));
  const reading = open();
  const held = opened.move();
  return {
    table,
    next: (waitMs, signal) => stream.next(waitMs, signal),
    rulesOf: (place, signal) => ruleTexts(reading, kernel, place, signal),
    [Symbol.dispose]: () => held.dispose(),
  };
}

async function made(nftables: Nftables, commands: readonly string[]): Promise<void> {
  try {
    await nftables.commit("trace a flow", commands.join("\n"));
  } catch (cause) {
    if (!isPodnetError(cause, "FIREWALL_FAILED")) throw cause;
    throw new PodnetError("FIREWALL_FAILED", `The flow cannot be traced: ${cause.message}`, {
      hint: "A live trace needs Linux 5.12 or later with CONFIG_NF_TABLES_BRIDGE; without --live nothing is needed",
      details: cause.details,
      cause,
    });
  }
}
