import test from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { isPodnetError } from "../../core/errors.ts";
import { AttachmentSite, macOf } from "../lab/attachment-site.ts";
import { ip } from "../lab/network.ts";

const { signal } = new AbortController();

let site: AttachmentSite;

test.before(async () => {
  site = await AttachmentSite.open();
  for (const n of [2, 3]) await site.container(n);
  await site.attachments.ensure(site.fragment(3), signal);
});
// (Each test for itself: whoever ended it makes it again.)
test.beforeEach(() => site.attachments.ensure(site.fragment(2), signal));
test.after.always(() => site[Symbol.asyncDispose]());

/** All of the host and of a container, without what changes by itself. */
async function everything(n: number): Promise<string> {
  const texts = [
    await ip("-d -o link show"),
    await ip("-o address show"),
    await site.inside(n, "-d -o link show"),
    await site.inside(n, "-o address show"),
    await site.inside(n, "route show table all"),
    await site.inside(n, "-6 route show table all"),
  ];
  // (Link-local addresses and their routes come when the kernel is sure of them.)
  return texts
    .join("\n")
    .split("\n")
    .filter((line) => !/fe80:|ff00:/.test(line))
    .join("\n")
    .replaceAll(/(?:\w+_timer|valid_lft|preferred_lft|expires) +\S+/g, "");
}

const hostLinks = async (): Promise<string> => ip("-o link show");

test.serial("a container is attached whole, and speaks with host and others at once", async (t) => {
  const observed = await site.attachments.ensure(site.fragment(2), signal);
  t.like(observed, {
    guest: { name: "eth0", mac: macOf(2), mtu: 1400 },
    host: { name: "pc2", mtu: 1400 },
    bridge: { name: "hyper0" },
  });
  const inside = await site.inside(2, "-d -o link show eth0");
  t.regex(inside, /link\/ether 0a:58:c0:a8:7b:02/);
  t.regex(inside, /mtu 1400 .*state UP/);
  t.regex(await site.inside(2, "-o link show lo"), /UP,LOWER_UP/);
  t.regex(
    await site.inside(2, "-4 -o address show eth0"),
    /192\.168\.123\.2\/24 brd 192\.168\.123\.255/,
  );
  const six = await site.inside(2, "-6 -o address show dev eth0 scope global");
  t.regex(six, /fd00:123::2\/64/);
  t.notRegex(six, /tentative|dadfailed/);
  t.regex(await site.inside(2, "route show default"), /via 192\.168\.123\.1 dev eth0/);
  const port = await ip("-d -o link show pc2");
  t.regex(port, /master hyper0 .*group 2036822107 .*alias podnet:attachment:c2/s);
  for (const to of ["192.168.123.1", "192.168.123.3", "fd00:123::1", "fd00:123::3"])
    t.true(await site.reaches(2, to), to);
  t.false(await site.reaches(2, "192.168.123.77"));
  t.deepEqual(await site.attachments.check(site.fragment(2), signal), []);
});

test.serial("a second time changes nothing", async (t) => {
  const before = await everything(2);
  await site.attachments.ensure(site.fragment(2), signal);
  t.is(await everything(2), before);
});

const wrongs: Readonly<Record<string, readonly [spoil: () => Promise<unknown>, says: RegExp]>> = {
  "its MAC": [
    () => site.inside(2, "link set eth0 address 02:00:00:00:00:09"),
    /mac is 02:.*:09, should be 0a:58/,
  ],
  "its MTU": [() => site.inside(2, "link set eth0 mtu 1300"), /mtu is 1300, should be 1400/],
  "its address": [
    () => site.inside(2, "address del 192.168.123.2/24 dev eth0"),
    /address of eth0 is absent, should be 192/,
  ],
  "its IPv6 address": [
    () => site.inside(2, "address del fd00:123::2/64 dev eth0"),
    /should be fd00/,
  ],
  "its default route": [
    () => site.inside(2, "route del default"),
    /route of eth0 to 0\.0\.0\.0\/0 is absent, should be by 192/,
  ],
  "its route's gateway": [
    () => site.inside(2, "route replace default via 192.168.123.9 dev eth0"),
    /is by 192\.168\.123\.9, should be absent/,
  ],
  "loopback down": [() => site.inside(2, "link set lo down"), /lo state is down/],
  "its link down": [() => site.inside(2, "link set eth0 down"), /eth0 state is down/],
  "its port off the bridge": [() => ip("link set pc2 nomaster"), /pc2 on hyper0/],
  "its port down": [() => ip("link set pc2 down"), /pc2 up/],
};

for (const [what, [spoil, says]] of Object.entries(wrongs))
  test.serial(`what is wrong is reported and repaired: ${what}`, async (t) => {
    await spoil();
    const found = await site.attachments.check(site.fragment(2), signal);
    t.regex(found.join("\n"), says);
    await site.attachments.ensure(site.fragment(2), signal);
    t.deepEqual(await site.attachments.check(site.fragment(2), signal), []);
    t.true(await site.reaches(2, "192.168.123.1"));
    t.true(await site.reaches(2, "fd00:123::1"));
  });

test.serial("what others put into the namespace stays", async (t) => {
  await site.inside(2, "address add 10.7.0.1/24 dev eth0");
  await site.inside(2, "route add 10.8.0.0/16 via 192.168.123.3");
  await site.attachments.ensure(site.fragment(2), signal);
  t.regex(await site.inside(2, "-4 -o address show eth0"), /10\.7\.0\.1/);
  t.regex(await site.inside(2, "route"), /10\.8\.0\.0\/16/);
  await site.inside(2, "address del 10.7.0.1/24 dev eth0");
  await site.inside(2, "route del 10.8.0.0/16");
});

test.serial("routes have what was asked of them", async (t) => {
  await site.container(4);
  const route = (destination: string, more: object = {}) => ({
    destination: destination as Cidr,
    ...more,
  });
  const gateway = "192.168.123.1" as Ip;
  const fragment = site.fragment(4, {
    routes: [
      route("0.0.0.0/0", { gateway, mtu: 1300, advmss: 1200, priority: 50 }),
      route("10.20.0.0/16"),
      route("10.30.0.0/16", { gateway: "10.20.0.9" }),
      route("10.40.0.0/16", { gateway: "172.16.0.1" }),
      route("10.50.0.0/16", { gateway, table: 1000 }),
      route("10.60.0.0/16", { scope: 253 }),
      route("fd00:9::/64", { gateway: "fe80::1" }),
    ],
  });
  await site.attachments.ensure(fragment, signal);
  const routes = await site.inside(4, "route show table all");
  t.regex(routes, /default via 192\.168\.123\.1 dev eth0 .*metric 50 mtu 1300 advmss 1200/);
  t.regex(routes, /10\.20\.0\.0\/16 dev eth0 .*scope link/);
  t.regex(routes, /10\.30\.0\.0\/16 via 10\.20\.0\.9 dev eth0 (?!.*onlink)/);
  t.regex(routes, /10\.40\.0\.0\/16 via 172\.16\.0\.1 dev eth0 .*onlink/);
  t.regex(routes, /10\.50\.0\.0\/16 via 192\.168\.123\.1 dev eth0 table 1000/);
  t.regex(routes, /10\.60\.0\.0\/16 dev eth0 .*scope link/);
  t.regex(await site.inside(4, "-6 route"), /fd00:9::\/64 via fe80::1 dev eth0/);
  t.deepEqual(await site.attachments.check(fragment, signal), []);
  const before = await everything(4);
  await site.attachments.ensure(fragment, signal);
  t.is(await everything(4), before);
  // What is not wanted any more, and was ours, goes.
  await site.attachments.ensure(site.fragment(4), signal);
  t.notRegex(await site.inside(4, "route show table all"), /10\.[2-6]0\.0\.0/);
});

test.serial("isolated containers reach the host and not each other", async (t) => {
  for (const n of [5, 6]) {
    await site.container(n);
    await site.attachments.ensure(site.fragment(n, { isolated: true }), signal);
  }
  t.false(await site.reaches(5, "192.168.123.6"));
  t.true(await site.reaches(5, "192.168.123.1"));
  t.true(await site.reaches(5, "192.168.123.2"));
});

test.serial("a foreign name is refused, and nothing of it touched", async (t) => {
  await site.container(7);
  await site.inside(7, "link add eth0 type bridge");
  const before = await hostLinks();
  await t.throwsAsync(site.attachments.ensure(site.fragment(7), signal), {
    code: "NAME_IN_USE",
  } as never);
  t.is(await hostLinks(), before);
  await site.inside(7, "link del eth0");
  await ip("link add pc7 type bridge");
  await t.throwsAsync(site.attachments.ensure(site.fragment(7), signal), {
    code: "NAME_IN_USE",
  } as never);
  await site.attachments.release([site.fragment(7)]);
  t.regex(await hostLinks(), /pc7/);
  await ip("link del pc7");
  await site.attachments.ensure(site.fragment(7), signal);
  t.true(await site.reaches(7, "192.168.123.1"));
});

test.serial("a namespace that is gone is a typed error, and nothing is left", async (t) => {
  const error = await t.throwsAsync(site.attachments.ensure(site.fragment(99), signal));
  t.true(isPodnetError(error, "NETNS_UNUSABLE"));
  t.notRegex(await hostLinks(), /pc99/);
});

test.serial("what fails half way is undone", async (t) => {
  await site.container(8);
  const missing = site.fragment(8, { bridge: "nobridge" as IfName });
  await t.throwsAsync(site.attachments.ensure(missing, signal), {
    code: "BRIDGE_CONFLICT",
  } as never);
  await site.attachments.sweep();
  t.notRegex(await hostLinks(), /pc8/);
  t.notRegex(await site.inside(8, "-o link show"), /eth0/);
  await site.attachments.ensure(site.fragment(8), signal);
  t.true(await site.reaches(8, "192.168.123.1"));
});

test.serial("released, a container reaches nothing; swept, nothing of it is left", async (t) => {
  t.true(await site.reaches(2, "192.168.123.1"));
  await site.attachments.release([site.fragment(2), site.fragment(3)]);
  t.false(await site.reaches(2, "192.168.123.1"));
  t.regex(await ip("-o link show pc2"), /group 74/);
  t.notRegex(await ip("-o link show pc2"), /master/);
  t.is(await site.attachments.sweep(), 2);
  t.notRegex(await hostLinks(), /pc[23]:|pc[23]@/);
  t.notRegex(await site.inside(2, "-o link show"), /eth0/);
  // Twice is as good as once.
  await site.attachments.release([site.fragment(2), site.fragment(3)]);
  t.is(await site.attachments.sweep(), 0);
});

test.serial("a sandbox is attached again before the former link is swept", async (t) => {
  await site.attachments.ensure(site.fragment(2), signal);
  await site.attachments.release([site.fragment(2)]);
  await site.attachments.ensure(site.fragment(2), signal);
  t.true(await site.reaches(2, "192.168.123.1"));
  await site.attachments.release([site.fragment(2)]);
  const again = site.fragment(2, {
    key: "c200",
    hostLink: "pc200" as IfName,
    alias: "podnet:attachment:c200",
  });
  await site.attachments.ensure(again, signal);
  t.true(await site.reaches(2, "192.168.123.1"));
  await site.attachments.release([again]);
  await site.attachments.sweep();
});

test.serial("a group that also has foreign links costs them nothing", async (t) => {
  await site.attachments.ensure(site.fragment(2), signal);
  await ip("link add theirs type bridge");
  await ip("link set theirs group 74");
  await site.attachments.release([site.fragment(2)]);
  t.is(await site.attachments.sweep(), 1);
  t.regex(await hostLinks(), /theirs/);
  t.notRegex(await hostLinks(), /pc2@/);
  await ip("link del theirs");
});

test.serial(
  "a namespace that went takes its links along; released afterwards all the same",
  async (t) => {
    await site.container(9);
    await site.attachments.ensure(site.fragment(9), signal);
    await site.lose(9);
    await site.attachments.release([site.fragment(9)]);
    await site.attachments.sweep();
    t.notRegex(await hostLinks(), /pc9/);
  },
);

test.serial("eight at once on one and on eight sandboxes", async (t) => {
  for (let n = 20; n < 29; n++) await site.container(n);
  const eight = Array.from({ length: 8 }, (_, i) => 20 + i);
  await Promise.all(eight.map((n) => site.attachments.ensure(site.fragment(n), signal)));
  for (const n of eight) t.true(await site.reaches(n, "192.168.123.1"), `${n}`);
  await Promise.all(eight.map(() => site.attachments.ensure(site.fragment(28), signal)));
  t.true(await site.reaches(28, "192.168.123.21"));
  await Promise.all([
    ...eight.slice(1).map((n) => site.attachments.release([site.fragment(n)])),
    site.attachments.ensure(site.fragment(20), signal),
    site.attachments.sweep(),
  ]);
  await site.attachments.sweep();
  t.true(await site.reaches(20, "192.168.123.1"));
  t.notRegex(await hostLinks(), /pc2[1-7]@/);
});
