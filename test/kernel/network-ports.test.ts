import test from "ava";
import type { IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import type { PodFragment, PortDesired } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import { podMark } from "../../network/model/ownership.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";

const { signal } = new AbortController();
const pod = "podaaaaaaaa2";
const at = (n: number): string => `ends-${process.pid}-${n}`;
const bridge = "br9" as IfName;

/** A port whose far end is a machine of its own, 10.9.0.n. */
async function plug(n: number): Promise<void> {
  await ip(`netns add ${at(n)}`);
  await ip(`link add t${n} type veth peer name e0 netns ${at(n)}`);
  for (const words of [
    `link set e0 address 52:54:00:00:09:0${n} up`,
    `address add 10.9.0.${n}/24 dev e0`,
  ])
    await ip(`-n ${at(n)} ${words}`);
}

const port = (n: number, more: Partial<PortDesired> = {}): PortDesired => ({
  tap: `t${n}` as IfName,
  bridge,
  guestMac: `52:54:00:00:09:0${n}` as Mac,
  guestAddresses: [`10.9.0.${n}/24` as IpPrefix],
  alias: podMark(pod, n),
  isolated: false,
  mtu: 1500,
  foreign: true,
  ...more,
});

const fragment = (...ports: readonly PortDesired[]): PodFragment => ({
  kind: "pod",
  key: pod,
  ports,
});

async function reaches(from: number, to: number): Promise<boolean> {
  const ping = ["ping", "-c", "1", "-W", "1", `10.9.0.${to}`];
  const { exitCode } = await run(["ip", "netns", "exec", at(from), ...ping], { okCodes: [0, 1] });
  return exitCode === 0;
}

/** What a foreign bridge is set to, its ports and timers aside. */
async function settings(): Promise<unknown> {
  const [link] = JSON.parse(await ip(`-d -j link show ${bridge}`)) as Record<string, unknown>[];
  const text = JSON.stringify(link);
  return JSON.parse(text, (key, value: unknown) =>
    /^(?:flags|operstate|qdisc|address|bridge_id|root_id|tso_max_\w+|\w+_timer)$/.test(key)
      ? undefined
      : value,
  );
}

let host: HostNetwork;

test.before(async () => {
  await ownNetns();
  unshareNetns();
  host = openHostNetwork({ iptables: "off", chain: "HYPER", hostSeed: "test" });
});
test.after.always(() => host[Symbol.asyncDispose]());
test.beforeEach(async () => {
  await ip(`link add ${bridge} type bridge`);
  await ip(`link set ${bridge} up`);
  for (const n of [1, 2, 3, 4]) await plug(n);
});
test.afterEach.always(async () => {
  for (const n of [1, 2, 3, 4]) {
    // A namespace's links go a while after it.
    await ip(`link delete t${n}`);
    await ip(`netns delete ${at(n)}`);
  }
  await ip(`link delete ${bridge}`);
});

test.serial(
  "a bridge learns nothing from a port with learning off, and frames arrive all the same",
  async (t) => {
    const before = await settings();
    const wanted = fragment(port(1, { learning: false }), port(2));
    await host.apply(wanted, signal);
    t.deepEqual(await settings(), before, "nothing of the bridge itself is changed");
    t.deepEqual(await host.apply(wanted, signal), []);
    t.true(await reaches(1, 2));
    const recorded = async (n: number): Promise<boolean> =>
      (await run(["bridge", "fdb", "show", "br", bridge])).stdout.includes(`52:54:00:00:09:0${n} `);
    t.false(await recorded(1));
    t.true(await recorded(2), "from a port that says nothing it learns");
    await run(["bridge", "link", "set", "dev", "t1", "learning", "on"]);
    t.deepEqual(changesText(await host.diff(wanted, signal)), ["port ~ t1 learning off"]);
  },
);

test.serial("a foreign bridge keeps its MAC, though it never got one of its own", async (t) => {
  await ip("link set t4 address f8:00:00:00:00:04");
  await ip(`link set t4 master ${bridge}`);
  const address = async (): Promise<string> =>
    (JSON.parse(await ip(`-j link show ${bridge}`)) as { address: string }[])[0]?.address ?? "";
  t.is(await address(), "f8:00:00:00:00:04", "that of its lowest port");
  await ip("link set t3 address 02:00:00:00:00:03");
  const wanted = fragment(port(1), port(2), port(3));
  await host.apply(wanted, signal);
  t.is(await address(), "f8:00:00:00:00:04");
  t.true(await reaches(1, 3));
  t.deepEqual(await host.apply(wanted, signal), []);
  await ip("link set t3 address 02:00:00:00:00:03");
  t.is(await address(), "02:00:00:00:00:03", "control: a lower one would be the bridge's");
  t.deepEqual(changesText(await host.diff(wanted, signal)), ["link ~ t3 mac fe:54:00:00:09:03"]);
});

test.serial("isolated ports on a foreign bridge reach others alone", async (t) => {
  await host.apply(
    fragment(port(1, { isolated: true }), port(2, { isolated: true }), port(3)),
    signal,
  );
  t.true(await reaches(1, 3));
  t.true(await reaches(2, 3));
  t.false(await reaches(1, 2));
});

test.serial("a bridge that is gone is its owner's to make again, and is said to be", async (t) => {
  await ip(`link delete ${bridge}`);
  const error = await t.throwsAsync(host.apply(fragment(port(1)), signal), {
    code: "BRIDGE_CONFLICT",
  });
  t.regex((error as unknown as { hint: string }).hint, /its owner has to make it again/);
  await ip(`link add ${bridge} type bridge`);
});

test.serial(
  "a look at several pods finds those whose links are not as planned, or are left",
  async (t) => {
    await plug(8);
    await plug(9);
    const other = "podaaaaaaaa3";
    const one = fragment(port(8));
    const two: PodFragment = { ...fragment(port(9, { alias: podMark(other, 9) })), key: other };
    for (const each of [one, two]) await host.apply(each, signal);
    const found = async () => [...(await host.observe.deviating([one, two], signal))];
    t.deepEqual(await found(), []);
    for (const words of ["link set t9 nomaster", "link set t9 down", "link set t9 mtu 1400"]) {
      await ip(words);
      t.deepEqual(await found(), [two], words);
      await host.apply(two, signal);
      t.deepEqual(await found(), []);
    }
    await ip("link delete t9");
    t.deepEqual(await found(), [two], "missing");
    const limited = fragment(port(8, { vlan: 7 }));
    t.deepEqual([...(await host.observe.deviating([limited], signal))], [limited], "not listed");

    const links = async (key: string, ...names: string[]) => [
      ...(await host.observe.withLinks([{ kind: "pod", key, names: names as IfName[] }])),
    ];
    t.deepEqual(await links(pod), [pod], "by its mark");
    t.deepEqual(await links(other, "t9"), []);
    t.deepEqual(await links(other, "t8"), [], "of another");
    await ip("link add t9 type bridge");
    t.deepEqual(await links(other, "t9"), [other], "unmarked, by its name");
    await ip("link delete t9");
  },
);
