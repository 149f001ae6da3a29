import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { type Cidr, ipOf, parseCidr, parseIp } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { parseNetworkName } from "../../../../core/names.ts";
import {
  LeasedNetwork,
  type LeasedShape,
} from "../../../../daemon/overlays/lease/leased-network.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { freeLease, insertLease } from "../../../../daemon/ipam/store.ts";
import { putNetwork } from "../../../../daemon/networks/store.ts";
import { openLog } from "../../../../linux/log.ts";
import { until } from "../../../lab/until.ts";

const network = parseNetworkName("default");
const one = parseCidr("10.77.1.0/24");
const two = parseCidr("10.77.2.0/24");

/** A network without a host below it; what happens to it, in order. */
function stage(t: ExecutionContext, first: readonly Cidr[] = []) {
  const directory = mkdtempSync(join(tmpdir(), "podnet-leased-"));
  t.teardown(() => rmSync(directory, { recursive: true }));
  const db = Database.openIn(directory);
  t.teardown(() => db.close());
  const happened: string[] = [];
  let now: LeasedShape = { subnets: first, mtu: 1450 };
  let fails: PodnetError | undefined;
  const definition = () => ({
    name: network,
    bridge: "hyper0" as never,
    subnets: now.subnets.map((cidr) => ({
      cidr,
      gateway: `${ipOf(cidr).replace(/0$/, "1")}/24` as never,
      ranges: [],
      reserved: [],
    })),
    mtu: now.mtu,
    dns: [],
    dnsSearch: [],
    masquerade: false,
    isolated: false,
    vlanFiltering: false,
    mayOverlap: false,
  });
  putNetwork(db, definition(), { state: "ready", configured: true, createdMs: 1 });
  const closed: { why?: PodnetError } = {};
  // (Timers of the queue keep no process alive.)
  const alive = setInterval(() => {}, 60_000);
  t.teardown(() => clearInterval(alive));
  const leased = new LeasedNetwork(
    {
      network,
      overlay: "flannel",
      networks: {
        find: definition,
        follow(_name, { subnets, mtu }) {
          if (fails !== undefined) return Promise.reject(fails);
          now = { subnets: subnets.map(({ cidr }) => cidr), mtu };
          happened.push(`network ${now.subnets.join()}`);
          return Promise.resolve(definition());
        },
        close: (_name, why) => void (closed.why = why),
        open: () => void delete closed.why,
      },
      db,
      clock: systemClock,
      log: openLog({ component: "test", level: "error" }),
      remember: ({ subnets }) => happened.push(`remember ${subnets.join()}`),
      takeBack: ({ subnets }) => happened.push(`remember ${subnets.join()}`),
    },
    "waiting",
  );
  return {
    leased,
    happened,
    closed,
    take: (ip: string) =>
      insertLease(db, network, parseIp(ip), { kind: "pod", id: "abcdefghijkl/0" }, 1),
    free: (ip: string) => freeLease(db, network, parseIp(ip), 2),
    fail: (error: PodnetError | undefined) => void (fails = error),
  };
}

test("without a subnet nothing new is let in; with one all is, and it is written down before", async (t) => {
  const { leased, happened, closed } = stage(t);
  t.is(closed.why?.code, "OVERLAY_NOT_READY");
  t.is(closed.why?.details["phase"], "waiting");
  t.true(await leased.become({ subnets: [one], mtu: 1450 }, "held"));
  t.deepEqual(happened, [`remember ${one}`, `network ${one}`]);
  t.is(closed.why, undefined);
  await leased[Symbol.asyncDispose]();
});

test("a lease that came back different waits until the last address of the former subnet is free", async (t) => {
  const { leased, happened, closed, take, free } = stage(t, [one]);
  take("10.77.1.5");
  const moved = leased.become({ subnets: [two], mtu: 1450 }, "held");
  await until("closed", () => closed.why !== undefined);
  t.deepEqual(happened, []);
  free("10.77.1.5");
  t.true(await moved);
  t.deepEqual(happened, [`remember ${two}`, `network ${two}`]);
  t.is(closed.why, undefined);
  await leased[Symbol.asyncDispose]();
});

test("subnets that are to stay after all do: a drain is cancelled, and pods are let in again", async (t) => {
  const { leased, happened, closed, take } = stage(t, [one]);
  take("10.77.1.5");
  const drained = leased.become({ subnets: [], mtu: 1450 }, "draining");
  await until("closed", () => closed.why?.details["phase"] === "draining");
  t.true(await leased.become({ subnets: [one], mtu: 1450 }, "held"));
  t.false(await drained);
  t.is(closed.why, undefined);
  t.deepEqual(leased.subnets, [one]);
  t.false(happened.includes("network "));
  await leased[Symbol.asyncDispose]();
});

test("what the host refuses is tried again, and until then what was there is what is written down", async (t) => {
  const { leased, happened, fail } = stage(t, [one]);
  fail(new PodnetError("NETLINK_FAILED", "not now"));
  const moved = leased.become({ subnets: [two], mtu: 1450 }, "held");
  await until("a try", () => happened.includes(`remember ${one}`));
  fail(undefined);
  t.true(await moved);
  t.deepEqual(happened.slice(-2), [`remember ${two}`, `network ${two}`]);
  await leased[Symbol.asyncDispose]();
});

test("the end of podnetd ends the wait for pods", async (t) => {
  const { leased, take } = stage(t, [one]);
  take("10.77.1.5");
  const moved = leased.become({ subnets: [two], mtu: 1450 }, "held");
  await leased[Symbol.asyncDispose]();
  t.false(await moved);
});

test("who asks for a pod while the configured range is another one is not sent to a command that cannot help", async (t) => {
  const { leased, closed, take, free } = stage(t, [one]);
  take("10.77.1.9");
  const moved = leased.become({ subnets: [], mtu: 1450 }, "moving");
  await until("it to be closed", () => closed.why?.hint?.includes("the pods on it") === true);
  t.regex(closed.why?.message ?? "", /outside of the configured range/);
  t.notRegex(closed.why?.hint ?? "", /podnet overlay/);
  t.is(closed.why?.details["phase"], "draining");
  free("10.77.1.9");
  t.true(await moved);
  // A host that leaves can take part again.
  t.true(await leased.become({ subnets: [], mtu: 1450 }, "draining"));
  t.regex(closed.why?.hint ?? "", /podnet overlay join/);
  await leased[Symbol.asyncDispose]();
});
