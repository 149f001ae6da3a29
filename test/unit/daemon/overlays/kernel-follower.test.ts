import test from "ava";
import { systemClock } from "../../../../core/clock.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { KernelFollower } from "../../../../daemon/overlays/kernel/kernel-follower.ts";
import { openLog } from "../../../../linux/log.ts";
import type {
  OverlayDelta,
  OverlayDesired,
  OverlayShape,
} from "../../../../network/model/overlay.ts";
import type { OverlayOutcome } from "../../../../network/overlay/overlays.ts";
import type { Peer, PeerChange } from "../../../../overlay/peers.ts";
import { overlayOf } from "../../../lab/overlay.ts";
import { until } from "../../../lab/until.ts";

const peer = (n: number, mac = n): Peer => ({
  key: `10.77.${n}.0-24`,
  subnets: { v4: `10.77.${n}.0/24` as never, v6: `fd00:77:0:${n}::/64` as never },
  publicIp: `192.0.2.${n}` as never,
  publicIp6: undefined,
  attributes: {
    type: "vxlan",
    v4: { vni: 1, mac: `02:00:00:00:04:0${mac}` as never },
    v6: undefined,
  },
  reserved: false,
});
const added = (one: Peer): PeerChange => ({ kind: "added", peer: one });
const removed = (one: Peer): PeerChange => ({ kind: "removed", peer: one });
const changed = (before: Peer, after: Peer): PeerChange => ({
  kind: "changed",
  before,
  peer: after,
  attributes: ["v4"],
});

/** A delta in one line: what goes and what comes. */
const deltaText = (delta: OverlayDelta): string =>
  [...delta]
    .map(([family, { removed: less, added: more }]) =>
      [
        `IPv${family}`,
        ...less.map(({ subnet, vtepMac }) => `-${subnet} ${vtepMac?.slice(-1)}`),
        ...more.map(({ subnet, vtepMac }) => `+${subnet} ${vtepMac?.slice(-1)}`),
      ].join(" "),
    )
    .join(", ");
const wholeText = ({ sides }: OverlayDesired): string =>
  `whole ${sides.flatMap(({ peers }) => peers.map(({ subnet }) => subnet)).join(" ")}`;

/** A follower on a kernel that is played, and what it was asked for. */
function opened() {
  const asked: string[] = [];
  const peers = new Map<string, Peer>();
  const kernel = { fits: true, failures: 0 };
  const outcome = (): OverlayOutcome => ({
    changes: [],
    rules: [],
    failures: kernel.failures-- > 0 ? [new PodnetError("NETLINK_FAILED", "no", { hint: "" })] : [],
    refused: [],
    mtu: 1450,
    macs: new Map(),
  });
  const follower = new KernelFollower({
    overlays: {
      async ensure(desired) {
        asked.push(wholeText(desired));
        return outcome();
      },
      async follow(_name, delta) {
        asked.push(`delta ${deltaText(delta)}`.trim());
        return kernel.fits ? outcome() : undefined;
      },
      async diff(desired) {
        asked.push(`look at ${wholeText(desired)}`);
        return { changes: [], rules: [] };
      },
    },
    peers: () => peers.values(),
    clock: systemClock,
    log: openLog({ component: "test", level: "silent" }),
    onMade: () => {},
    onHealed: () => {},
  });
  /** As `OverlayHost` does with what the registry says. */
  const change = (...changes: PeerChange[]): void => {
    for (const each of changes)
      if (each.kind === "removed") peers.delete(each.peer.key);
      else peers.set(each.peer.key, each.peer);
    follower.note(changes);
  };
  const next = async (count: number): Promise<string[]> => {
    await until(`${count} calls`, () => asked.length >= count);
    return asked.splice(0);
  };
  return { follower, asked, kernel, change, next };
}

const shape: OverlayShape = overlayOf(1, { peers: [] });

test("what changes of peers reaches the kernel as that and nothing else, all of it at first", async (t) => {
  const { follower, change, next } = opened();
  await using _ = follower;
  change(added(peer(2)), added(peer(3)));
  follower.want(shape);
  t.deepEqual(await next(1), ["whole 10.77.2.0/24 10.77.3.0/24"]);
  change(added(peer(4)));
  follower.want(shape);
  t.deepEqual(await next(1), ["delta IPv4 +10.77.4.0/24 4"]);
  change(changed(peer(4), peer(4, 5)), removed(peer(2)));
  follower.want(shape);
  t.deepEqual(await next(1), ["delta IPv4 -10.77.4.0/24 4 -10.77.2.0/24 2 +10.77.4.0/24 5"]);
  // Another shape needs a look.
  change(added(peer(2)));
  follower.want({ ...shape, forward: false });
  t.deepEqual(await next(1), ["whole 10.77.3.0/24 10.77.4.0/24 10.77.2.0/24"]);
});

test("what comes and goes before its turn is in no delta", async (t) => {
  const { follower, change, next } = opened();
  await using _ = follower;
  follower.want(shape);
  await next(1);
  change(added(peer(2)), added(peer(3)));
  change(removed(peer(2)));
  change(changed(peer(3), peer(3, 7)));
  follower.want(shape);
  t.deepEqual(await next(1), ["delta IPv4 +10.77.3.0/24 7"]);
});

test("a delta that does not do, and what was not made whole, is followed by a look at all of it", async (t) => {
  const { follower, change, next, kernel } = opened();
  await using _ = follower;
  follower.want(shape);
  await next(1);
  kernel.fits = false;
  change(added(peer(2)));
  follower.want(shape);
  t.deepEqual(await next(2), ["delta IPv4 +10.77.2.0/24 2", "whole 10.77.2.0/24"]);
  kernel.fits = true;
  kernel.failures = 1;
  change(added(peer(3)));
  follower.want(shape);
  t.deepEqual(await next(2), ["delta IPv4 +10.77.3.0/24 3", "whole 10.77.2.0/24 10.77.3.0/24"]);
  t.is(follower.failures, 1);
  await until("it to be well", () => follower.error === undefined);
});

test("what is recalled gives way to the peers that there are; a look makes what is noted first", async (t) => {
  const { follower, change, next } = opened();
  await using _ = follower;
  follower.recall(overlayOf(1, { peers: [8, 9] }));
  t.deepEqual(await next(1), ["whole 10.77.8.0/24 10.77.9.0/24"]);
  change(added(peer(2)));
  follower.look();
  t.deepEqual(await next(1), ["look at whole 10.77.8.0/24 10.77.9.0/24"]);
  follower.want(shape);
  t.deepEqual(await next(1), ["whole 10.77.2.0/24"]);
  change(added(peer(3)));
  follower.look();
  t.deepEqual(await next(2), [
    "delta IPv4 +10.77.3.0/24 3",
    "look at whole 10.77.2.0/24 10.77.3.0/24",
  ]);
});
