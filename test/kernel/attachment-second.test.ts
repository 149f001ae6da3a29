/**
 * A container that has a network already, and podnet's link as its second: Multus, podman with two
 * networks.
 */
import test from "ava";
import { onlyLook } from "../../network/bridge/inspect.ts";
import { AttachmentSite } from "../lab/attachment-site.ts";
import { ip } from "../lab/network.ts";
import { run } from "../../linux/processes/command.ts";

const { signal } = new AbortController();
const flows = 40;

let site: AttachmentSite;

test.before(async () => {
  site = await AttachmentSite.open();
  for (const command of [
    "link add theirs type bridge",
    "address add 10.9.0.1/24 dev theirs",
    "address add fd09::1/64 dev theirs nodad",
    "link set theirs up",
  ])
    await ip(command);
});
test.after.always(() => site[Symbol.asyncDispose]());

/** A link of another plugin's, with addresses of both families. */
async function theirLink(n: number, name: string): Promise<void> {
  await ip(
    `link add th${n}${name} type veth peer name ${name} address 02:00:00:00:09:0${n} netns ${site.name(n)}`,
  );
  await ip(`link set th${n}${name} master theirs up`);
  await site.inside(n, `address add 10.9.0.${n}/24 dev ${name}`);
  await site.inside(n, `address add fd09::${n}/64 dev ${name} nodad`);
  await site.inside(n, `link set ${name} up`);
}

const defaults = (n: number, family: string): Promise<string> =>
  site.inside(n, `-${family} route show default`);

/** How many of the flows to as many addresses leave a container by a link. */
async function leavingBy(n: number, link: string, net: string): Promise<number> {
  const nft = async (...words: readonly string[]): Promise<string> =>
    (await run(["ip", "netns", "exec", site.name(n), "nft", ...words])).stdout;
  await nft(
    `add table inet count; add chain inet count out { type filter hook output priority 0; }; add rule inet count out oifname ${link} udp dport 7 counter`,
  );
  const send = `
import socket
for n in range(1, 1 + ${flows}):
    s = socket.socket(socket.AF_INET6 if ":" in "${net}" else socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"x", ("${net}%d" % n, 7))
    s.close()`;
  await site.does(n, ["python3", "-c", send]);
  const seen = /counter packets (\d+)/.exec(await nft("list", "chain", "inet", "count", "out"));
  await nft("delete table inet count");
  return Number(seen?.[1]);
}

test.serial(
  "as a second link podnet's leaves the container's default routes first, and takes over when they go",
  async (t) => {
    await site.container(2);
    await theirLink(2, "eth0");
    await site.inside(2, "route add default via 10.9.0.1 dev eth0");
    await site.inside(2, "-6 route add default via fd09::1 dev eth0");
    const fragment = site.fragment(2, { guestLink: "net1" });
    const { behind } = await site.attachments.ensure(fragment, signal);
    for (const net of ["198.51.100.", "2001:db8::"])
      t.is(await leavingBy(2, "eth0", net), flows, net);
    // What is answered is what was set.
    const second = fragment.routes.filter(({ destination }) => destination === "::/0");
    t.deepEqual(
      behind,
      second.map((route) => ({ ...route, priority: 1025 })),
    );
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    const before = [await defaults(2, "4"), await defaults(2, "6")];
    for (let looks = 0; looks < 3; looks++) {
      const options = { heal: () => true, linksOnly: false, inside: true };
      const seen = await site.attachments.inspect(fragment.key, () => fragment, options, signal);
      t.deepEqual(seen.found, []);
    }
    t.deepEqual([await defaults(2, "4"), await defaults(2, "6")], before);
    await ip("link delete th2eth0");
    for (const net of ["198.51.100.", "2001:db8::"])
      t.is(await leavingBy(2, "net1", net), flows, net);
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    await site.attachments.release([fragment]);
    await site.attachments.sweep();
  },
);

test.serial(
  "two links of podnet's behind another one are each checked by themselves",
  async (t) => {
    await site.container(3);
    await theirLink(3, "eth0");
    await site.inside(3, "-6 route add default via fd09::1 dev eth0");
    const all = [site.fragment(3, { guestLink: "net1" }), site.fragment(4, { guestLink: "net2" })];
    const metrics: unknown[] = [];
    for (const fragment of all) {
      const mine = { ...fragment, netns: `/run/netns/${site.name(3)}` };
      const { behind } = await site.attachments.ensure(mine, signal);
      metrics.push(behind?.[0]?.priority);
      t.deepEqual(await site.attachments.check(mine, signal), []);
    }
    t.deepEqual(metrics, [1025, 1026]);
    t.notRegex(await defaults(3, "6"), /nexthop/);
    await site.attachments.release(all);
    await site.attachments.sweep();
  },
);

test.serial(
  "a next hop that an earlier podnet added to another's route is put behind it",
  async (t) => {
    await site.container(5);
    await theirLink(5, "eth0");
    const fragment = site.fragment(5, { guestLink: "net1" });
    await site.attachments.ensure(fragment, signal);
    await site.inside(5, "-6 route flush exact default");
    await site.inside(5, "-6 route add default via fd09::1 dev eth0");
    await site.inside(5, "-6 route append default via fd00:123::1 dev net1 proto 73");
    t.regex(await defaults(5, "6"), /nexthop/);
    t.regex((await site.attachments.check(fragment, signal)).join(), /route of net1 to ::\/0/);
    await site.attachments.ensure(fragment, signal);
    t.notRegex(await defaults(5, "6"), /nexthop/);
    t.is(await leavingBy(5, "eth0", "2001:db8::"), flows);
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    await site.attachments.release([fragment]);
    await site.attachments.sweep();
  },
);

test.serial("a next hop that others add to podnet's route is left to them", async (t) => {
  await site.container(6);
  const fragment = site.fragment(6);
  await site.attachments.ensure(fragment, signal);
  await theirLink(6, "net1");
  // As Debian's plugins do (RouteAddEcmp).
  await site.inside(6, "-6 route append default via fd09::1 dev net1");
  const before = await defaults(6, "6");
  t.regex(before, /nexthop/);
  const options = { heal: onlyLook, linksOnly: false, inside: true };
  const seen = await site.attachments.inspect(fragment.key, () => fragment, options, signal);
  t.deepEqual(seen, { found: [], healed: true, error: undefined });
  await site.attachments.ensure(fragment, signal);
  t.is(await defaults(6, "6"), before);
  await site.attachments.release([fragment]);
  await site.attachments.sweep();
});
