import test from "ava";
import type { OverlayDesired } from "../../network/model/overlay.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import { watchRtnetlink } from "../../linux/netlink/rtnetlink-events.ts";
import { followDelta, openOverlayHosts, type OverlayHost, overlayOf } from "../lab/overlay.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();

/**
 * What a host's kernel reports, apart from what its overlays asked for: how often, and what of it
 * damages them.
 */
function watch({ name, overlays }: OverlayHost) {
  const heard = { events: 0, damages: 0, ours: 0, links: [] as string[] };
  const note = (event: RtnetlinkEvent): void => {
    heard.events++;
    if (event.kind === "link") heard.links.push(event.link.name);
    if (event.kind === "route" && !event.gone && event.route.protocol === 73) heard.ours++;
    if (overlays.isDamaged(event)) heard.damages++;
  };
  const watching = withNetns(`/run/netns/${name}`, () =>
    watchRtnetlink(
      {
        groups: ["link", "neighbour", "address4", "address6", "route4", "route6"],
        passOver: (portId) => overlays.hasAsked(portId),
      },
      note,
      () => {},
    ),
  );
  return Object.assign(heard, { [Symbol.dispose]: () => watching.close() });
}

/** Returns when everything that had happened until now has been heard of. */
async function caughtUp(host: OverlayHost, { links }: { readonly links: readonly string[] }) {
  const before = links.length;
  await host.run("ip link add mark0 type bridge");
  await host.run("ip link delete mark0");
  await until("the last event", () => links.slice(before).includes("mark0"));
}

const damages = [
  "ip route del 10.77.2.0/24",
  "ip route replace 10.77.2.0/24 via 192.0.2.9 proto 73",
  "ip -6 route del fd00:77:0:2::/64",
  "ip neigh del 10.77.2.0 dev flannel.1",
  "ip neigh replace 10.77.2.0 lladdr 02:00:00:00:04:99 dev flannel.1",
  "bridge fdb del 02:00:00:00:04:02 dev flannel.1",
  "bridge fdb replace 02:00:00:00:04:02 dev flannel.1 dst 192.0.2.9 self permanent",
  "ip addr del 10.77.1.0/32 dev flannel.1",
] as const;

test.serial("the kernel reports what others take of an overlay's, each of it", async (t) => {
  await using lab = await openOverlayHosts(1);
  const [host] = lab.hosts as [OverlayHost];
  const desired = overlayOf(1, { peers: [2, 3], families: [4, 6] });
  using heard = watch(host);
  for (const command of damages) {
    await host.overlays.ensure(desired, signal);
    await caughtUp(host, heard);
    const before = heard.damages;
    await host.run(command);
    await until(`word of "${command}"`, () => heard.damages > before);
    t.true(heard.damages > before, command);
  }
});

test.serial(
  "what podnetd itself makes and takes is no damage, nor what is not the overlay's",
  async (t) => {
    await using lab = await openOverlayHosts(1);
    const [host] = lab.hosts as [OverlayHost];
    using heard = watch(host);
    const withPeers = (...peers: number[]): OverlayDesired =>
      overlayOf(1, { peers, families: [4, 6] });
    await host.overlays.ensure(withPeers(2, 3), signal);
    await followDelta(host, withPeers(2, 3), withPeers(3, 4), signal);
    await followDelta(host, withPeers(3, 4), withPeers(2), signal);
    await host.run("ip route add 198.51.100.0/24 via 192.0.2.9");
    await host.run("ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev eth0");
    await host.run("ip addr add 192.0.2.200/24 dev eth0");
    await caughtUp(host, heard);
    t.is(heard.damages, 0);
    t.is(heard.ours, 0, "thousands of peers cost no reading");
    t.true(heard.events > 3, "what others did was heard of");
    await host.run("ip route del 10.77.2.0/24");
    await until("word of it", () => heard.damages > 0);
    await host.run("ip route add 10.77.2.0/24 via 192.0.2.9 proto 73");
    await until("an event of another program", () => heard.ours > 0);
  },
);
