import test from "ava";
import { parseIp } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import type { PodnetError } from "../../core/errors.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import type { InterfaceChoice } from "../../daemon/config/overlay.ts";
import type { Uplink } from "../../daemon/overlays/kernel/choose-uplink.ts";
import { UplinkFollower } from "../../daemon/overlays/kernel/follow-uplink.ts";
import { observeHostLinks } from "../../daemon/overlays/kernel/host-links.ts";
import { ownNetns } from "../lab/netns.ts";

const ip = (...commands: string[]): Promise<unknown> =>
  run(["ip", "-batch", "-"], { stdin: `${commands.join("\n")}\n` });

const anything: InterfaceChoice = {
  interfaces: [],
  patterns: [],
  canReach: undefined,
  publicIp: undefined,
  publicIp6: undefined,
};

// What follows the kernel does not keep the process alive.
const alive = setInterval(() => {}, 1000);
test.after.always(() => clearInterval(alive));

test.before(async () => {
  await ownNetns();
  await ip(
    "link add eth0 type veth peer name far0",
    "link add eth1 type veth peer name far1",
    "link add br0 type bridge",
    "link add flannel.9 type vxlan id 9 dstport 8472 dev eth0",
    "link set flannel.9 alias podnet:overlay:default",
    "link set far0 master br0",
    "addr add 192.0.2.250/24 dev flannel.9",
    "link set eth1 mtu 1400",
    ...["eth0", "far0", "eth1", "far1"].map((link) => `link set ${link} up`),
    "addr add 169.254.7.7/16 dev eth0 scope link",
    "addr add 192.0.2.1/24 dev eth0 valid_lft 600 preferred_lft 0",
    "addr add 192.0.2.2/24 dev eth0 valid_lft 600 preferred_lft 600",
    "addr add 192.0.2.3/24 dev eth0",
    "addr add 2001:db8::5/64 dev eth0 nodad",
    "addr add 198.51.100.1/24 dev eth1",
    "route add default via 192.0.2.254 dev eth0 metric 50",
    "route add default via 198.51.100.254 dev eth1 metric 100",
    "route add 203.0.113.0/24 via 198.51.100.254 src 198.51.100.1",
  );
});

/** What a follower has reported, and who waits for more. */
class Reported {
  readonly uplinks: Uplink[] = [];
  readonly troubles: PodnetError[] = [];
  #waiting: (() => void) | undefined;

  readonly onUplink = (uplink: Uplink): void => {
    this.uplinks.push(uplink);
    this.#waiting?.();
  };
  readonly onTrouble = (trouble: PodnetError): void => {
    this.troubles.push(trouble);
    this.#waiting?.();
  };

  async until(done: () => boolean): Promise<void> {
    while (!done()) await new Promise<void>((resolve) => (this.#waiting = resolve));
  }
}

test.serial(
  "the host's links are seen as others reach it: what stays before what goes, nothing of podnet's",
  async (t) => {
    using netlink = Rtnetlink.open();
    const { links, reach, defaults } = await observeHostLinks(netlink, parseIp("203.0.113.9"));
    const byName = new Map(links.map((link) => [link.name, link]));
    t.deepEqual([...byName.keys()].sort(), ["br0", "eth0", "eth1", "far1"]);
    const eth0 = byName.get("eth0");
    const eth1 = byName.get("eth1");
    const usable = eth0?.addresses;
    t.deepEqual(usable?.slice(0, 2), ["192.0.2.3", "2001:db8::5"] as never);
    t.is(usable?.[2], "192.0.2.2" as never, "one that expires");
    t.is(usable?.at(-1), "169.254.7.7" as never);
    t.false(usable?.includes("192.0.2.1" as never), "one that is deprecated");
    t.is(eth1?.mtu, 1400);
    t.deepEqual(reach, { link: eth1?.index, source: "198.51.100.1" } as never);
    t.is(defaults[4], eth0?.index, "the lower metric");
    t.is(defaults[6], undefined);
  },
);

test.serial(
  "an address that moves, a link that goes and one that comes back are followed",
  async (t) => {
    const reported = new Reported();
    await using follower = new UplinkFollower({
      choice: anything,
      families: [4],
      quietMs: 100,
      onUplink: reported.onUplink,
      onTrouble: reported.onTrouble,
    });
    const first = await follower.look();
    t.is(first?.publicIp, "192.0.2.3" as never);
    await ip("link set eth0 mtu 1300");
    await reported.until(() => reported.uplinks.length === 2);
    t.is(reported.uplinks[1]?.publicIp, "192.0.2.3" as never);
    t.is(reported.uplinks[1]?.mtu, 1300);

    await ip("addr del 192.0.2.3/24 dev eth0", "addr add 192.0.2.77/24 dev eth0");
    await reported.until(() => reported.uplinks.length === 3);
    t.is(follower.uplink?.publicIp, "192.0.2.77" as never);

    // The link goes, and its routes with it: the other default route's is there.
    await ip("link set eth0 down");
    await reported.until(() => reported.uplinks.length === 4);
    t.is(follower.uplink?.link, "eth1" as never);

    await ip("link set eth1 down");
    await reported.until(() => reported.troubles.length === 1);
    t.is(reported.troubles[0]?.code, "PREFLIGHT_FAILED");
    t.is(follower.uplink?.link, "eth1" as never, "the one before is kept");
    await ip("link set eth1 up", "route add default via 198.51.100.254 dev eth1 metric 100");
    await follower.look();
    t.is(reported.uplinks.length, 4, "it is the same as before");
  },
);

test.serial(
  "an address that goes and is back before things stand still moves nothing",
  async (t) => {
    const reported = new Reported();
    await using follower = new UplinkFollower({
      choice: { ...anything, interfaces: ["eth1"] },
      families: [4],
      quietMs: 60_000,
      onUplink: reported.onUplink,
      onTrouble: reported.onTrouble,
    });
    t.is((await follower.look())?.publicIp, "198.51.100.1" as never);
    await ip("addr del 198.51.100.1/24 dev eth1", "addr add 198.51.100.2/24 dev eth1");
    await ip("addr del 198.51.100.2/24 dev eth1", "addr add 198.51.100.1/24 dev eth1");
    t.is((await follower.look())?.publicIp, "198.51.100.1" as never);
    t.is(reported.uplinks.length, 1);
    // What would have been reported without changes.
    await ip("addr del 198.51.100.1/24 dev eth1", "addr add 198.51.100.2/24 dev eth1");
    t.is((await follower.look())?.publicIp, "198.51.100.2" as never);
  },
);

test.serial(
  "a follower with a named interface waits for it, and hears of it when it comes",
  async (t) => {
    const reported = new Reported();
    await using follower = new UplinkFollower({
      choice: { ...anything, interfaces: ["late0"] },
      families: [6],
      quietMs: 50,
      onUplink: reported.onUplink,
      onTrouble: reported.onTrouble,
    });
    t.is(await follower.look(), undefined);
    t.is(reported.troubles.length, 1);
    await follower.look();
    t.is(reported.troubles.length, 1, "reported once");
    await ip(
      "link add late0 type veth peer name late1",
      "addr add 2001:db8:7::1/64 dev late0 nodad",
      "link set late1 up",
      "link set late0 up",
    );
    await reported.until(() => reported.uplinks.length === 1);
    t.is(follower.uplink?.publicIp6, "2001:db8:7::1" as never);
  },
);
