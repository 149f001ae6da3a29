import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import type { OverlayWorker } from "./overlay-worker.ts";
import { type Footing, ownLeases, converged, deadlineMs } from "./overlay-look.ts";
import { bystander, create, goDown, remove, restart, started } from "./pods.ts";
import { looks, parse, type Point, pointsIn } from "./points.ts";
import { leftOnHost } from "./visit-node.ts";

/** What is done to a host's part of an overlay. */
export type OverlayOperation =
  /** The first start of a podnetd that is in one, with another host there already. */
  | "join"
  /**
   * A start of one that was killed, with a pod on its network, and other hosts come and gone
   * meanwhile.
   */
  | "recover"
  /** Other hosts come, change and go. */
  | "peers"
  | "leave";

export const overlayOperations = ["join", "recover", "peers", "leave"] as const;

interface Acts {
  /** The act is podnetd's start itself. */
  readonly starts: boolean;
  /** How the host may be in the overlay afterwards. */
  readonly footings: readonly Footing[];
  /** Makes what it is done to; podnetd runs afterwards unless `starts`. */
  prepare(site: OverlayWorker): Promise<void>;
  /** Does it to a podnetd that may end in the middle. */
  act(site: OverlayWorker): Promise<void>;
}

export const overlayActs: Readonly<Record<OverlayOperation, Acts>> = {
  join: {
    starts: true,
    footings: ["member"],
    async prepare(site) {
      await cleared(site);
      await site.putPeer(201);
    },
    act: async () => {},
  },

  recover: {
    starts: true,
    footings: ["member"],
    async prepare(site) {
      await joined(site);
      await create(site.worker, bystander);
      await site.putPeer(202);
      await convergedAs(site, "member");
      await site.worker.kill();
      await site.putPeer(201, 1);
      await site.deletePeer(202);
      await site.putPeer(203);
    },
    act: async () => {},
  },

  peers: {
    starts: false,
    footings: ["member"],
    prepare: joined,
    async act(site) {
      await site.putPeer(202);
      await followed(site);
      await site.putPeer(201, 1);
      await site.putPeer(202, 1);
      await followed(site);
      await site.deletePeer(202);
      await followed(site);
    },
  },

  leave: {
    starts: false,
    footings: ["member", "left"],
    prepare: joined,
    async act({ worker }) {
      try {
        await worker.client.overlays.leave({}, { timeoutMs: deadlineMs });
      } catch (thrown) {
        if (!isPodnetError(thrown)) throw thrown;
      }
    },
  },
};

/** A member with one other host and no pod. */
async function joined(site: OverlayWorker): Promise<void> {
  const { worker } = site;
  if ((await worker.ended(0)) !== undefined) await started(worker, []);
  await remove(worker, bystander);
  for (const n of [202, 203]) await site.deletePeer(n);
  await site.putPeer(201);
  await worker.client.overlays.join({});
  await convergedAs(site, "member");
}

async function convergedAs(site: OverlayWorker, footing: Footing): Promise<void> {
  const { problems } = await converged(site, [footing]);
  if (problems.length > 0)
    throw new Error(`Nothing is armed, and still: ${problems.join("\n")}\n${site.worker.log()}`);
}

/** Waits until the kernel has what etcd says, unless podnetd has died, or is held up. */
async function followed({ worker }: OverlayWorker): Promise<void> {
  for (const deadline = performance.now() + 5000; performance.now() < deadline; await delay(20)) {
    if ((await worker.ended(0)) !== undefined) return;
    const { lines } = await worker.client.overlays
      .diff({}, { timeoutMs: 1000 })
      .catch(() => ({ lines: ["it does not answer"] }));
    if (lines.length === 0) return;
  }
}

/** No host is in the overlay, nothing is on the host or written down. */
async function cleared(site: OverlayWorker): Promise<void> {
  const { worker } = site;
  if ((await worker.ended(0)) === undefined) await goDown(worker);
  worker.forget();
  await site.forgetLeases();
}

/**
 * Leaves with everything, and says what stays on the host and in etcd. The worker has no podnetd
 * afterwards.
 */
export async function leftNothing(site: OverlayWorker): Promise<readonly string[]> {
  const { worker, bare } = site;
  await remove(worker, bystander);
  await worker.client.overlays.leave({}, { timeoutMs: deadlineMs });
  const { problems } = await converged(site, ["left"]);
  await goDown(worker);
  const own = await ownLeases(site);
  const records = await site.records();
  return [
    ...problems,
    ...(await leftOnHost(worker, bare)),
    ...own.map(([subnet]) => `lease ${subnet} stays`),
    ...records.map((key) => `${key} stays`),
  ].map((problem) => `after leaving and going down: ${problem}`);
}

/**
 * The failpoints of an operation: what each of several runs records of it, but for looks, which
 * come as they please.
 */
export async function enumerateOverlay(
  site: OverlayWorker,
  operation: OverlayOperation,
  times: number,
): Promise<readonly Point[]> {
  const { starts, prepare, act, footings } = overlayActs[operation];
  const records: (readonly string[])[] = [];
  const acts: ReadonlySet<string>[] = [];
  for (let run = 1; run <= times; run++) {
    await prepare(site);
    // As it is visited: by a podnetd that has done nothing before.
    await restart(site.worker, []);
    if (!starts) await converged(site, ["member"]);
    const before = starts ? fromOverlay(site.worker.record()) : site.worker.record().length;
    await act(site);
    await converged(site, [footings.at(-1) as Footing]);
    const record = site.worker.record();
    records.push(record);
    acts.push(new Set(record.slice(before)));
  }
  return pointsIn(...records).filter(
    (point) => !looks.test(parse(point).name) && acts.every((passed) => passed.has(point)),
  );
}

/**
 * Where the overlay begins in the record of a start; what comes before is a start's like any other.
 */
const fromOverlay = (record: readonly string[]): number =>
  record.findIndex((line) => line.startsWith("socket:connect to etcd:before#"));
