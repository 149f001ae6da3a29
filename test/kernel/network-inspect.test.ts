import test from "ava";
import type { Deviation } from "../../network/model/deviation.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import { onlyLook } from "../../network/bridge/inspect.ts";
import { nftablesGeneration, parseGeneration } from "../../linux/nftables/nftables-generation.ts";
import { run } from "../../linux/processes/command.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip, networkFragment, podFragment } from "../lab/network.ts";

const never = new AbortController().signal;
const network = networkFragment();
const look = { heal: onlyLook, linksOnly: false } as const;
const heal = { heal: () => true, linksOnly: false } as const;
let host: HostNetwork;

test.serial.before(async () => {
  await ownNetns();
  host = openHostNetwork({ iptables: "nft", chain: "HYPER" });
  await host.apply(network, never);
});
test.serial.after.always(async () => host?.[Symbol.asyncDispose]());

const text = (found: readonly Deviation[]): string[] =>
  found.map(({ subject, found: is, wanted }) => `${subject}: ${is} → ${wanted}`);

test.serial(
  "the number of nf_tables changes with its rules, and not by looking at them",
  async (t) => {
    const before = nftablesGeneration();
    t.is(typeof before, "number");
    await run(["iptables-nft-save"]);
    t.is(nftablesGeneration(), before);
    await run(["iptables-nft", "-A", "INPUT", "-p", "udp", "-j", "ACCEPT"]);
    t.not(nftablesGeneration(), before);
  },
);

test("an answer that is no generation is none", (t) => {
  t.is(parseGeneration(new Uint8Array(0)), undefined);
  t.is(parseGeneration(new Uint8Array(36)), undefined);
  const bytes = new Uint8Array(28);
  new DataView(bytes.buffer).setUint16(4, (10 << 8) | 15, true);
  t.is(parseGeneration(bytes), undefined);
  bytes.set([8, 0, 1, 0, 1, 2, 3, 4], 20);
  t.is(parseGeneration(bytes), 0x01020304);
  t.is(parseGeneration(bytes.subarray(0, 27)), undefined);
});

/** A change of the host by another program, and what is found of it. */
const harms: readonly (readonly [string, readonly string[], RegExp])[] = [
  ["its rules are flushed", ["iptables-nft -F"], /iptables-nft filter: absent → -[AI] /],
  ["NAT is flushed", ["iptables-nft -t nat -F"], /iptables-nft nat: absent → -[AI] /],
  [
    "a jump goes",
    ["iptables-nft -t nat -D PREROUTING 1"],
    /iptables-nft nat: absent → -[AI] PREROUTING/,
  ],
  [
    "the chain is deleted",
    ["iptables-nft -F", "iptables-nft -X HYPER"],
    /iptables-nft filter: absent → :HYPER/,
  ],
  ["the bridge is deleted", ["ip link del hyper0"], /link hyper0: absent → bridge/],
  ["the bridge is down", ["ip link set hyper0 down"], /link hyper0 state: down → up/],
  [
    "the address goes",
    ["ip addr flush dev hyper0"],
    /address of hyper0: absent → 192\.168\.123\.1\/24/,
  ],
  [
    "the address is another",
    ["ip addr flush dev hyper0", "ip addr add 10.9.9.9/24 dev hyper0"],
    /address of hyper0: 10\.9\.9\.9\/24 → 192\.168\.123\.1\/24/,
  ],
  ["the MTU is another", ["ip link set hyper0 mtu 1400"], /link hyper0 mtu: 1400 → 1500/],
  [
    "forwarding is off",
    ["sysctl -q -w net.ipv4.ip_forward=0"],
    /sysctl net\.ipv4\.ip_forward: 0 → 1/,
  ],
];

for (const [what, commands, expected] of harms)
  test.serial(`${what}: seen without being touched, then healed`, async (t) => {
    t.deepEqual((await host.inspect(() => network, look, never)).found, []);
    const before = await host.observe.fingerprint([network], never);
    for (const command of commands) await run(command.split(" ") as [string, ...string[]]);
    const links = ["link", "addr"].includes(commands[0]?.split(" ")[1] ?? "");
    if (!links) t.not(await host.observe.fingerprint([network], never), before);
    for (const [options, again] of [
      [look, true],
      [heal, false],
    ] as const) {
      const { found, error } = await host.inspect(() => network, options, never);
      t.is(error, undefined);
      t.regex(text(found).join("\n"), expected);
      t.is((await host.diff(network, never)).length > 0, again);
    }
  });

test.serial(
  "what is no port any more is one again; what bears no mark is not taken for it",
  async (t) => {
    const pod = podFragment(2);
    await ip("link add tap2 type veth peer name vtap2");
    await host.apply(pod, never);
    await ip("link set tap2 nomaster");
    const gone = await host.inspect(() => pod, heal, never);
    t.deepEqual(text(gone.found), ["port tap2: on no bridge → hyper0"]);
    t.deepEqual(await host.diff(pod, never), []);
    await ip("link del tap2");
    const missing = await host.inspect(() => pod, heal, never);
    t.is(missing.error?.code, "NETLINK_FAILED");
    await ip("link add tap2 type veth peer name vtap2");
    const before = await ip("-d link show dev tap2");
    const strange = await host.inspect(() => pod, heal, never);
    t.is(strange.error?.code, "NAME_IN_USE");
    t.is(await ip("-d link show dev tap2"), before);
    await ip("link del tap2");
  },
);

test.serial(
  "an adopted bridge that its owner took down stays down, the rest is healed, and it is said",
  async (t) => {
    await ip("link add br9 type bridge");
    await ip("addr add 10.99.0.1/24 dev br9");
    const gateways = ["10.99.0.1/24" as never];
    const adopted = networkFragment({
      key: "far",
      bridge: "br9" as never,
      gateways,
      masquerade: [],
    });
    await host.apply(adopted, never);
    t.regex(await ip("link show dev br9"), /[<,]UP[,>]/);
    await ip("link set br9 down");
    await run(["iptables-nft", "-F"]);
    const { found, healed, error } = await host.inspect(() => adopted, heal, never);
    t.regex(text(found).join("\n"), /link br9 state: down → up/);
    t.false(healed);
    t.is(error?.code, "BRIDGE_CONFLICT");
    t.notRegex(await ip("link show dev br9"), /[<,]UP[,>]/);
    t.deepEqual(
      (await host.diff(adopted, never)).map(({ kind }) => kind),
      ["set-adopted"],
    );
    await host.remove(adopted, never);
    await ip("link del br9");
    await host.apply(network, never);
  },
);

test.serial("rules of iptables-legacy are noticed too, their counters are not", async (t) => {
  const legacy = ["iptables-legacy", "-A", "OUTPUT", "-o", "lo", "-j", "ACCEPT"] as const;
  const seen = [await host.observe.fingerprint([network], never)];
  await run(legacy);
  seen.push(await host.observe.fingerprint([network], never));
  await run(["ping", "-c", "1", "127.0.0.1"]);
  seen.push(await host.observe.fingerprint([network], never));
  t.not(seen[1], seen[0]);
  t.is(seen[2], seen[1]);
});

test.serial("a look whose object has gone meanwhile does nothing", async (t) => {
  const { found, error } = await host.inspect(() => undefined, heal, never);
  t.deepEqual({ found, error }, { found: [], error: undefined });
});
