import { PodnetError } from "../../core/errors.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { type ElementChange, encodeElements, readAnswer, type Refused } from "./set-elements.ts";

/** Changes elements of nf_tables, in the network namespace the calling thread is in at birth. */
export class ElementSocket {
  readonly #socket = new NetlinkSocket({ family: "netfilter" });
  #seq = 0;

  /** Makes all changes or, when it throws `FIREWALL_FAILED`, none. */
  change(what: string, table: string, changes: readonly ElementChange[]): void {
    if (changes.length === 0) return;
    // Numbers of a transaction follow one another, and 0 is for events.
    if (this.#seq + changes.length + 2 > 0xffff_ffff) this.#seq = 0;
    const batch = encodeElements(table, changes, this.#seq + 1);
    this.#seq += changes.length + 2;
    this.#socket.send(batch.bytes);
    const refused = readAnswer(batch, this.#received(what));
    if (refused === undefined) throw unknown(what, "ENODATA", "the kernel did not answer");
    const [first] = refused;
    if (first !== undefined) throw refusal(what, first);
  }

  close(): void {
    this.#socket.close();
  }

  /** The kernel has queued its answers before `send` returns. */
  #received(what: string): Uint8Array[] {
    const datagrams: Uint8Array[] = [];
    for (;;) {
      const part = this.#socket.receive();
      if (part === "empty") return datagrams;
      if (part === "lost") throw unknown(what, "ENOBUFS", "the kernel's answer was lost");
      datagrams.push(part);
    }
  }
}

/** Whether the changes were made is not known. */
const unknown = (what: string, errno: string, why: string): PodnetError =>
  new PodnetError("FIREWALL_FAILED", `nftables, ${what}: ${why}`, {
    hint: "podnet looks at the rules again by itself; if this comes again, report it",
    details: { kernel: errno },
  });

function refusal(what: string, { ack, change }: Refused): PodnetError {
  const errno = errnoName(ack.errno);
  const about = change === undefined ? "" : ` element { ${change.key} } of ${change.set.name}:`;
  const text = ack.text === undefined || ack.text === "" ? "" : ` (${ack.text})`;
  return new PodnetError("FIREWALL_FAILED", `nftables, ${what}:${about} ${errno}${text}`, {
    hint: hints[errno] ?? "nft list ruleset shows what there is",
    details: {
      kernel: errno,
      ...(change === undefined ? {} : { set: change.set.name, key: change.key }),
    },
  });
}

const hints: Readonly<Record<string, string>> = {
  EPERM: "Run podnetd as root, or give it CAP_NET_ADMIN",
  ENFILE: "The set is full: it takes as many elements as it was declared with",
};
