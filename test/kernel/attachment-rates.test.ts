import test from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { AttachmentSite } from "../lab/attachment-site.ts";
import { ip } from "../lab/network.ts";

const { signal } = new AbortController();

let site: AttachmentSite;

test.before(async () => {
  site = await AttachmentSite.open();
  for (const n of [2, 3]) await site.container(n);
  await site.attachments.ensure(site.fragment(3), signal);
});
test.after.always(() => site[Symbol.asyncDispose]());

const slow = { bitsPerSecond: 800_000, burstBits: 80_000 };
const limited = (rates: AttachmentFragment["rates"]): AttachmentFragment =>
  site.fragment(2, { ...(rates && { rates }) });

interface Queue {
  readonly kind: string;
  readonly handle: string;
  readonly options: { readonly rate?: number; readonly burst?: number };
  readonly overlimits: number;
}

async function queues(link: string): Promise<readonly Queue[]> {
  const { stdout } = await run(["tc", "-s", "-j", "qdisc", "show", "dev", link]);
  return JSON.parse(stdout) as Queue[];
}
const queue = async (link: string): Promise<Queue | undefined> =>
  (await queues(link)).find(({ kind }) => kind === "tbf");

/**
 * Sends 50 frames of 1,000 bytes at once, fewer than may wait, and waits for all echoes. Seconds it
 * took.
 */
async function seconds(): Promise<number> {
  const argv = ["ping", "-q", "-i", "0.002", "-s", "1000", "-c", "50", "-W", "20", "192.168.123.3"];
  const begin = performance.now();
  const { stdout } = await run(["ip", "netns", "exec", site.name(2), ...argv]);
  if (!stdout.includes(" 0% packet loss")) throw new Error(stdout);
  return (performance.now() - begin) / 1000;
}

// What is held to 100 KB a second with 10 KB at once takes 0.4 s for 50 KB, however slow the
// machine is.
const leastSeconds = 0.4;

test.serial("without a limit nothing is held up", async (t) => {
  await site.attachments.ensure(limited(undefined), signal);
  t.is(await queue("pc2"), undefined);
  await seconds();
  t.notRegex(await ip("-o link show"), /pic2/);
});

test.serial("the way in is held to its rate, and the way out is not", async (t) => {
  const fragment = limited({ toGuest: slow });
  t.regex(
    (await site.attachments.check(fragment, signal)).join("\n"),
    /100000 bytes a second, 10000 at once/,
  );
  await site.attachments.ensure(fragment, signal);
  t.deepEqual(await site.attachments.check(fragment, signal), []);
  t.like((await queue("pc2"))?.options, { rate: 100_000, burst: 10_000 });
  t.true((await seconds()) >= leastSeconds);
  t.true(((await queue("pc2"))?.overlimits ?? 0) > 0);
  t.notRegex(await ip("-o link show"), /pic2/);
});

test.serial("the way out is held to its rate by a link of its own", async (t) => {
  // (Also when this test runs alone.)
  await site.attachments.ensure(limited({ toGuest: slow }), signal);
  await run(["tc", "qdisc", "del", "dev", "pc2", "root"]);
  const fragment = limited({ fromGuest: slow });
  await site.attachments.ensure(fragment, signal);
  t.deepEqual(await site.attachments.check(fragment, signal), []);
  t.is(await queue("pc2"), undefined);
  t.true((await seconds()) >= leastSeconds);
  t.true(((await queue("pic2"))?.overlimits ?? 0) > 0);
  t.regex(await ip("-d -o link show pic2"), /group 73.*alias podnet:attachment:c2/s);
});

test.serial("another rate takes the place of the first; twice changes nothing", async (t) => {
  const faster = { bitsPerSecond: 80_000_000_000, burstBits: 4_294_967_295 };
  const fragment = limited({ toGuest: faster, fromGuest: slow });
  await site.attachments.ensure(fragment, signal);
  t.is((await queue("pc2"))?.options.rate, 10_000_000_000);
  t.deepEqual(await site.attachments.check(fragment, signal), []);
  const made = async () =>
    [...(await queues("pc2")), ...(await queues("pic2"))].map(({ kind, handle, options }) => ({
      kind,
      handle,
      options,
    }));
  const before = await made();
  t.is(before.length, 3);
  await site.attachments.ensure(fragment, signal);
  t.deepEqual(await made(), before);
});

const spoils: Readonly<Record<string, () => Promise<unknown>>> = {
  "the rate is another": () =>
    run([
      "tc",
      "qdisc",
      "replace",
      "dev",
      "pic2",
      "root",
      "tbf",
      "rate",
      "1gbit",
      "burst",
      "1m",
      "limit",
      "1m",
    ]),
  "the redirection is gone": () => run(["tc", "filter", "del", "dev", "pc2", "ingress"]),
  "there is no place for it": () => run(["tc", "qdisc", "del", "dev", "pc2", "ingress"]),
  "the link is gone": () => ip("link del pic2"),
  "the link is down": () => ip("link set pic2 down"),
};

for (const [what, spoil] of Object.entries(spoils))
  test.serial(`what is wrong with a rate is reported and repaired: ${what}`, async (t) => {
    const fragment = limited({ fromGuest: slow });
    await site.attachments.ensure(fragment, signal);
    await spoil();
    t.not((await site.attachments.check(fragment, signal)).length, 0);
    await site.attachments.ensure(fragment, signal);
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    t.true((await seconds()) >= leastSeconds);
  });

test.serial("where no rate is asked for, what a plugin of others has set stays", async (t) => {
  await site.attachments.ensure(limited({ toGuest: slow, fromGuest: slow }), signal);
  const foreign = "handle 1: tbf rate 1gbit burst 1m limit 1m".split(" ");
  await run(["tc", "qdisc", "replace", "dev", "pc2", "root", ...foreign]);
  const others = await queues("pc2");
  t.is(others.length, 2);
  // What podnet itself had on the way out goes.
  await site.attachments.ensure(limited(undefined), signal);
  t.notRegex(await ip("-o link show"), /pic2/);
  t.deepEqual(await site.attachments.check(limited(undefined), signal), []);
  t.deepEqual(
    (await queues("pc2")).map(({ handle }) => handle),
    others.map(({ handle }) => handle),
  );
});

test.serial("rates go with their attachment", async (t) => {
  await site.attachments.ensure(limited({ fromGuest: slow }), signal);
  await site.attachments.release([limited({ fromGuest: slow })]);
  t.is(await site.attachments.sweep(), 2);
  t.notRegex(await ip("-o link show"), /p(?:c|ic)2/);
});

test.serial(
  "a macvlan alongside it is set up, and leads past it to the host and the services",
  async (t) => {
    await ip("link add up0 type veth peer name up1");
    await ip("address add 198.51.100.7/24 dev up0");
    await ip("link set up0 up");
    await ip(`link add link up0 name macvlan0 type macvlan mode private`);
    await ip(`link set macvlan0 netns ${site.name(2)}`);
    const macvlan = {
      link: "macvlan0",
      gateway: "192.168.123.1" as Ip,
      serviceCidr: "172.30.0.0/16" as Cidr,
    };
    const fragment = site.fragment(2, { macvlan });
    await site.attachments.ensure(fragment, signal);
    t.regex(await site.inside(2, "-o link show macvlan0"), /[<,]UP/);
    const routes = await site.inside(2, "route");
    t.regex(routes, /198\.51\.100\.7 via 192\.168\.123\.1 dev eth0/);
    t.regex(routes, /172\.30\.0\.0\/16 via 192\.168\.123\.1 dev eth0/);
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    await site.inside(2, "link set macvlan0 down");
    t.regex((await site.attachments.check(fragment, signal)).join("\n"), /macvlan0 state is down/);
    // Without one, what would be done for it is not done.
    await site.attachments.ensure(site.fragment(3, { macvlan }), signal);
    t.notRegex(await site.inside(3, "route"), /172\.30/);
  },
);

test.serial(
  "the host's end of a pair that is the caller's is made a port, and the inside left alone",
  async (t) => {
    await site.container(4);
    await ip(`link add given type veth peer name eth0 netns ${site.name(4)}`);
    const fragment = site.fragment(4, { hostLink: "given" as IfName, madeByCaller: true });
    const observed = await site.attachments.ensure(fragment, signal);
    t.is(observed.guest, undefined);
    t.notRegex(await site.inside(4, "-o address show eth0"), /inet /);
    await site.inside(4, "link set eth0 up");
    await site.inside(4, "address add 192.168.123.4/24 dev eth0");
    t.true(await site.reaches(4, "192.168.123.1"));
    t.deepEqual(await site.attachments.check(fragment, signal), []);
    await site.attachments.release([fragment]);
    t.false(await site.reaches(4, "192.168.123.1"));
    await site.attachments.sweep();
    t.notRegex(await ip("-o link show"), /given/);
    await t.throwsAsync(site.attachments.ensure(fragment, signal), {
      code: "INVALID_ARGUMENT",
    } as never);
  },
);
