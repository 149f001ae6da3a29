import test from "ava";
import { run } from "../../linux/processes/command.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { onlyLook } from "../../network/bridge/inspect.ts";
import { AttachmentSite } from "../lab/attachment-site.ts";
import { ip } from "../lab/network.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();
const rate = { bitsPerSecond: 800_000_000, burstBits: 8_000_000 };

let site: AttachmentSite;
let fragment: AttachmentFragment;

test.before(async () => {
  site = await AttachmentSite.open();
  await site.container(2);
  const rates = { toGuest: rate, fromGuest: rate };
  fragment = site.fragment(2, { rates });
});
test.beforeEach(() => site.attachments.ensure(fragment, signal));
test.after.always(() => site[Symbol.asyncDispose]());

const look = (inside: boolean, heal = (): boolean => true) =>
  site.attachments.inspect(
    fragment.key,
    () => fragment,
    { heal, linksOnly: false, inside },
    signal,
  );
const qdisc = (text: string) => run(["tc", "qdisc", ...(text.split(" ") as [string])]);

const set = (n: number, setting: string, value: string): Promise<number> =>
  site.does(n, ["sysctl", "-qw", `net.ipv6.conf.eth0.${setting}=${value}`]);
const settings = async (n: number): Promise<string[]> => {
  const keys = ["accept_ra", "autoconf", "disable_ipv6"].map((key) => `net.ipv6.conf.eth0.${key}`);
  return (await run(["ip", "netns", "exec", site.name(n), "sysctl", "-n", ...keys])).stdout.split(
    "\n",
  );
};

const harms: Readonly<Record<string, readonly [harm: () => Promise<unknown>, subject: string]>> = {
  "its address": [() => site.inside(2, "address flush dev eth0"), "address of eth0"],
  "its route": [() => site.inside(2, "route del default"), "route of eth0 to 0.0.0.0/0"],
  "that it hears no routers": [
    () => set(2, "accept_ra", "1"),
    "sysctl net/ipv6/conf/eth0/accept_ra inside",
  ],
  "its IPv6": [() => set(2, "disable_ipv6", "1"), "sysctl net/ipv6/conf/eth0/disable_ipv6 inside"],
  "its link down": [() => site.inside(2, "link set eth0 down"), "link eth0 state"],
  "its MTU": [() => site.inside(2, "link set eth0 mtu 1280"), "link eth0 mtu"],
  "the rate in": [() => qdisc("del dev pc2 root"), "rate of pc2"],
  "the redirection of the way out": [() => qdisc("del dev pc2 ingress"), "way out by pc2"],
  "the rate out": [() => qdisc("del dev pic2 root"), "rate of pic2"],
  "the link that limits the way out": [() => ip("link del pic2"), "link pic2"],
  "the pair": [() => ip("link del pc2"), "link pc2"],
  "the pair, from inside": [() => site.inside(2, "link del eth0"), "link pc2"],
};

for (const [what, [harm, subject]] of Object.entries(harms))
  test.serial(`a look into a container heals what others took: ${what}`, async (t) => {
    t.deepEqual(await look(true), { found: [], healed: true, error: undefined });
    await harm();
    const seen = await look(true, onlyLook);
    t.false(seen.healed);
    t.true(
      seen.found.some((each) => each.subject === subject),
      JSON.stringify(seen.found),
    );
    const healed = await look(true);
    t.like(healed, { healed: true, error: undefined });
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    t.deepEqual(await look(true), { found: [], healed: true, error: undefined });
    t.true(await site.reaches(2, "192.168.123.1"));
    t.true(await site.reaches(2, "fd00:123::1"));
  });

test.serial(
  "a look at the port alone sees nothing inside, but makes a lost pair anew",
  async (t) => {
    await site.inside(2, "link set eth0 mtu 1280");
    t.deepEqual((await look(false)).found, []);
    await ip("link del pc2");
    t.like(await look(false), { healed: true, error: undefined });
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    t.true(await site.reaches(2, "192.168.123.1"));
  },
);

test.serial("an end that has another name inside is not replaced, and is reported", async (t) => {
  await site.inside(2, "link set eth0 down");
  await site.inside(2, "link set eth0 name mine");
  const before = await ip("-o link show pc2");
  const { healed, error } = await look(true);
  t.false(healed);
  t.is(error?.code, "INTERFACE_NOT_FOUND");
  t.is(await ip("-o link show pc2"), before);
  t.regex((await site.attachments.check(fragment, signal)).join(), /is not "eth0" in its/);
  await site.inside(2, "link set mine name eth0");
  t.like(await look(true), { healed: true, error: undefined });
});

test.serial("what is on its way out is not looked at, whoever asked before", async (t) => {
  const released = site.attachments.release([fragment]);
  const seen = await site.attachments.inspect(
    fragment.key,
    () => undefined,
    { heal: () => true, linksOnly: false, inside: true },
    signal,
  );
  await released;
  t.deepEqual(seen, { found: [], healed: true, error: undefined });
  t.is(await site.attachments.sweep(), 2);
});

test.serial("a namespace that is gone is reported as such, and nothing is made", async (t) => {
  await site.lose(2);
  // The kernel ends a namespace in its own time.
  await until("its links are gone", async () => !/pc2/.test(await ip("-o link show")));
  const { healed, error } = await look(true);
  t.false(healed);
  t.is(error?.code, "NETNS_UNUSABLE");
  t.notRegex(await ip("-o link show"), /pc2/);
  await site.attachments.release([fragment]);
  await site.container(2);
});

for (const [what, ask] of [
  ["a look at the port", () => look(false)],
  ["a look inside", () => look(true)],
  ["an ensure", () => site.attachments.ensure(fragment, signal)],
] as const)
  test.serial(`in another namespace by the same path nothing is made: ${what}`, async (t) => {
    const mine = fragment;
    const { namespace = "" } = await site.attachments.ensure(mine, signal);
    t.regex(namespace, /^\d+:\d+:\d+$/);
    fragment = { ...mine, namespace };
    t.deepEqual(await look(true), { found: [], healed: true, error: undefined });
    // (The kernel gives its inode to the next one at once.)
    await site.lose(2);
    await site.container(2);
    await until("its links are gone", async () => !/pc2/.test(await ip("-o link show")));
    const asked = await ask().catch((error: unknown) => ({ healed: false, error }));
    t.like(asked, {
      healed: false,
      error: { code: "NETNS_UNUSABLE", details: { trouble: "another" } },
    });
    t.notRegex(await site.inside(2, "-o link show"), /eth0/);
    t.notRegex(await ip("-o link show"), /pc2/);
    await t.throwsAsync(site.attachments.check(fragment, signal), {
      message: /another one by now/,
    });
    await site.attachments.release([fragment]);
    fragment = mine;
  });

/**
 * One router advertisement, of a default route alone, to all that are on the bridge, as a neighbour
 * would send it.
 */
const advertise = (): Promise<unknown> =>
  run([
    "python3",
    `${import.meta.dirname}/../lab/frames.py`,
    "send",
    "hyper0",
    JSON.stringify({
      dst: "33:33:00:00:00:01",
      src: "02:00:00:00:00:66",
      saddr: "fe80::66",
      daddr: "ff02::1",
      icmp: [134, 0],
      // Hop limit, flags, lifetime of the router, reachable time, retransmission time.
      text: `\u0040\0\u0007\u0008${"\0".repeat(8)}`,
    }),
  ]);

test.serial(
  "a container hears no router, and speaks no IPv6 where it was given none; another one alongside it does",
  async (t) => {
    const four = (n: number): AttachmentFragment => {
      const whole = site.fragment(n);
      const { addresses, routes } = whole;
      return { ...whole, addresses: addresses.slice(0, 1), routes: routes.slice(0, 1) };
    };
    for (const n of [3, 4]) {
      const path = await site.container(n);
      t.true(path.length > 0);
    }
    await site.attachments.ensure(four(3), signal);
    t.deepEqual((await settings(3)).slice(0, 3), ["0", "0", "1"], "IPv4 alone");
    t.deepEqual((await settings(2)).slice(0, 3), ["0", "0", "0"], "both families");
    t.is(await site.inside(3, "-6 address show dev eth0"), "");
    // As any other container is, by a plugin that does not know of it.
    await site.attachments.ensure(site.fragment(4), signal);
    await set(4, "accept_ra", "1");
    const routers = (n: number): Promise<string> =>
      site.inside(n, "-6 route show default proto ra");
    await until("the other one's router", async () => {
      await advertise();
      return (await routers(4)).includes("fe80::66");
    });
    for (const n of [2, 3]) t.is(await routers(n), "", `${n}`);
    for (const n of [3, 4]) await site.attachments.release([site.fragment(n)]);
    await site.attachments.sweep();
  },
);

test.serial("what a later plugin makes of a container's IPv6 is left to it", async (t) => {
  await site.container(5);
  const whole = site.fragment(5);
  const four = {
    ...whole,
    addresses: whole.addresses.slice(0, 1),
    routes: whole.routes.slice(0, 1),
  };
  await site.attachments.ensure(four, signal);
  await set(5, "accept_ra", "2");
  t.deepEqual(await site.attachments.check(four, signal), [], "it is to hear routers");
  await set(5, "disable_ipv6", "0");
  t.is((await site.attachments.check(four, signal)).length, 1, "not theirs without an address");
  await site.inside(5, "address add fd00:9::5/64 dev eth0 nodad");
  t.deepEqual(await site.attachments.check(four, signal), []);
  await site.attachments.ensure(four, signal);
  t.regex(await site.inside(5, "-6 address show dev eth0"), /fd00:9::5/);
  await site.attachments.release([four]);
  await site.attachments.sweep();
});
