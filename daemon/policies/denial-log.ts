import type { IfName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { LogRecord } from "../../linux/netfilter-log/record.ts";
import type { openNetfilterLog } from "../../linux/netfilter-log/open-log.ts";
import type { HostObservations } from "../../network/bridge/observations.ts";
import { denialGroup, directions, logPrefix } from "../../network/firewall/nftables/denials.ts";
import { decide } from "../../policy/decide.ts";
import type { Protocol } from "../../policy/model.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import { type DenialsParts, rulesOf } from "./denials.ts";
import type { Verdicts } from "./verdicts.ts";

export interface DenialLogParts extends Pick<DenialsParts, "decisionsOf"> {
  readonly read: typeof openNetfilterLog;
  readonly observe: Pick<HostObservations, "holderAt" | "namesOf">;
  readonly verdicts: Pick<Verdicts, "add" | "drop">;
  readonly log: Log;
}

/** Records that wait for the name of a link; more are dropped, and readers get their number. */
const mostWaiting = 1000;
/** Links whose names are remembered. No later link has the index of an earlier one. */
const mostLinks = 1000;

/** The numbers in IP headers; ICMP is that of either family. */
const numbers: ReadonlyMap<number, Protocol> = new Map([
  [1, "icmp"],
  [6, "tcp"],
  [17, "udp"],
  [58, "icmp"],
  [132, "sctp"],
]);

/**
 * Reads what the kernel logs of denied packets, and says of whom they were and by which rule. The
 * kernel bounds how much that is; while podnetd is stopped, nothing is logged.
 */
export class DenialLog implements AsyncDisposable {
  readonly #parts: DenialLogParts;
  readonly #queue: WorkQueue<"log">;
  readonly #links = new Map<number, IfName>();
  #reader: Disposable | undefined;
  #waiting = 0;
  #turn: Promise<void> = Promise.resolve();

  constructor(parts: DenialLogParts) {
    this.#parts = parts;
    const { log } = parts;
    this.#queue = new WorkQueue({
      name: "denials",
      backoff: { firstMs: 1000, longestMs: 60_000 },
      onDegraded: (_, { error }) =>
        log.warn({ err: error }, "Verdicts of policies are not shown live; retrying"),
      onRecovered: () => log.info({}, "Verdicts of policies are shown live"),
    });
    this.#queue.add("log", () => Promise.resolve(this.#open()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#reader?.[Symbol.dispose]();
    await this.#queue.close();
    await this.#turn;
  }

  #open(): void {
    const { read, log } = this.#parts;
    this.#reader = read(
      denialGroup,
      (records) => this.#take(records),
      () => log.info({}, "Some verdicts of policies were lost; their counts were not"),
    );
  }

  #take(records: readonly LogRecord[]): void {
    const taken = records.slice(0, mostWaiting - this.#waiting);
    if (taken.length < records.length) this.#parts.verdicts.drop(records.length - taken.length);
    this.#waiting += taken.length;
    this.#turn = this.#turn.then(async () => {
      try {
        for (const record of taken) await this.#report(record);
      } catch (thrown) {
        this.#parts.log.warn({ err: thrown }, "Failed to read a verdict of a policy");
      } finally {
        this.#waiting -= taken.length;
      }
    });
  }

  async #report(record: LogRecord): Promise<void> {
    const direction = directions.find((each) => logPrefix(each) === record.prefix);
    const { packet, mark } = record;
    if (direction === undefined || packet === undefined) return;
    const [index, own, address] =
      direction === "egress"
        ? [record.inLink, packet.source, packet.destination]
        : [record.outLink, packet.destination, packet.source];
    const link = await this.#nameOf(index);
    const { observe, decisionsOf, verdicts } = this.#parts;
    const owner = link === undefined ? undefined : observe.holderAt(link, own);
    if (owner === undefined) return;
    const decisions = decisionsOf(owner);
    const rule = rulesOf(decisions).get(mark);
    if (rule === undefined || decisions === undefined) return;
    const protocol = numbers.get(packet.protocol);
    const port = packet.destinationPort;
    const service = port === undefined ? {} : { port };
    const why =
      protocol === undefined
        ? undefined
        : decide(decisions[direction], { ip: address, protocol, ...service });
    verdicts.add({
      holder: owner.key,
      ...rule,
      // It may be of this flow, and not of all that the rule denies.
      ...(why?.policy === rule.policy && why.rule === rule.rule ? { reason: why.reason } : {}),
      unit: "packets",
      count: 1,
      protocol: protocol ?? String(packet.protocol),
      address,
      ...service,
    });
  }

  async #nameOf(index: number): Promise<IfName | undefined> {
    const known = this.#links.get(index);
    if (known !== undefined) return known;
    const [name] = await this.#parts.observe.namesOf([index]);
    if (name === undefined) return undefined;
    if (this.#links.size >= mostLinks) this.#links.clear();
    this.#links.set(index, name as IfName);
    return name as IfName;
  }
}
