import test from "ava";
import type { Ip } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import { DenialLog, type DenialLogParts } from "../../../../daemon/policies/denial-log.ts";
import { Verdicts } from "../../../../daemon/policies/verdicts.ts";
import type { LogRecord } from "../../../../linux/netfilter-log/record.ts";
import { openLog } from "../../../../linux/log.ts";
import { logPrefix, ruleNumber } from "../../../../network/firewall/nftables/denials.ts";
import { compile } from "../../../../policy/compile.ts";
import { readPolicy } from "../../../../policy/read-policy.ts";

const decisions = compile([readPolicy({ name: "p", default: "deny" })], {
  pods: [],
  host: [],
  hostServices: [],
  cloudMetadata: false,
});
const record: LogRecord = {
  prefix: logPrefix("egress"),
  mark: ruleNumber("egress", "p", "default"),
  inLink: 7,
  outLink: 0,
  packet: {
    source: "10.0.0.2" as Ip,
    destination: "192.0.2.1" as Ip,
    protocol: 6,
    destinationPort: 22,
  },
};

test("what podnetd is too slow to read is dropped, and its number shown", async (t) => {
  const verdicts = new Verdicts({ clock: systemClock, ownerOf: () => ({ container: "c" }) });
  const named = Promise.withResolvers<readonly (string | undefined)[]>();
  const taking = Promise.withResolvers<(records: readonly LogRecord[]) => void>();
  const read: DenialLogParts["read"] = (_group, take) => {
    taking.resolve(take);
    return { [Symbol.dispose]: () => {} };
  };
  const log = new DenialLog({
    read,
    observe: { namesOf: () => named.promise, holderAt: () => ({ kind: "pod", key: "one" }) },
    decisionsOf: () => decisions,
    verdicts,
    log: openLog({ component: "test", level: "silent" }),
  } as DenialLogParts);
  const take = await taking.promise;
  const over = new AbortController();
  const seen = verdicts.watch(undefined, over.signal);
  const other = verdicts.watch(["another"], over.signal);
  const [first, others] = [seen.next(), other.next()];
  take(Array.from({ length: 400 }, () => record));
  // Nothing of it is shown before the link has a name.
  take(Array.from({ length: 900 }, () => record));
  take([record]);
  t.deepEqual(await first, { done: false, value: { lost: 301 } });
  t.deepEqual(await others, { done: false, value: { lost: 301 } }, "they may be its own");
  named.resolve(["br0"]);
  t.like((await seen.next()).value, { holder: "one", rule: "default", port: 22 });
  await log[Symbol.asyncDispose]();
  over.abort();
});
