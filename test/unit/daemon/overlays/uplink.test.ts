import test from "ava";
import type { Ip, Ipv4, Ipv6 } from "../../../../core/address.ts";
import { isPodnetError, type PodnetError } from "../../../../core/errors.ts";
import type { InterfaceChoice } from "../../../../daemon/config/overlay.ts";
import {
  chooseUplink,
  type HostLinks,
  sameUplink,
} from "../../../../daemon/overlays/kernel/choose-uplink.ts";

const ips = (...texts: string[]): Ip[] => texts as Ip[];

const host: HostLinks = {
  links: [
    { index: 2, name: "eth0", mtu: 1500, addresses: ips("192.0.2.1", "192.0.2.9", "2001:db8::1") },
    { index: 3, name: "eth1", mtu: 9000, addresses: ips("10.20.0.1") },
    { index: 4, name: "six0", mtu: 1400, addresses: ips("2001:db8:6::1", "2001:db8:6::2") },
    { index: 5, name: "bare", mtu: 1500, addresses: [] },
  ],
  reach: { link: 3, source: "10.20.0.1" as Ip },
  defaults: { 4: 2, 6: 4 },
};

const nothing: InterfaceChoice = {
  interfaces: [],
  patterns: [],
  canReach: undefined,
  publicIp: undefined,
  publicIp6: undefined,
};

const chosen = (
  intended: Partial<InterfaceChoice>,
  families: readonly (4 | 6)[] = [4],
): readonly unknown[] => {
  const { link, mtu, address, address6, publicIp, publicIp6 } = chooseUplink(
    { ...nothing, ...intended },
    host,
    families,
  );
  return [link, mtu, address, address6, publicIp, publicIp6];
};

const eth0 = ["eth0", 1500, "192.0.2.1", undefined, "192.0.2.1", undefined];
const both = ["eth0", 1500, "192.0.2.1", "2001:db8::1", "192.0.2.1", "2001:db8::1"];
const eth1 = ["eth1", 9000, "10.20.0.1", undefined, "10.20.0.1", undefined];

test("an overlay's interface is found in flannel's order: names and addresses, expressions, what reaches an address", (t) => {
  t.deepEqual(chosen({ interfaces: ["eth1"], patterns: [/eth0/u] }), eth1);
  t.deepEqual(chosen({ interfaces: ["nowhere", "10.20.0.1", "eth0"] }), eth1, "the first there is");
  t.deepEqual(chosen({ interfaces: ["nowhere"], patterns: [/^eth1$/u] }), eth1);
  t.deepEqual(
    chosen({ patterns: [/^bare$|eth1/u] }),
    eth1,
    "one without an address is passed over",
  );
  t.deepEqual(chosen({ patterns: [/1/u] }), eth0, "addresses before names, in the links' order");
  const reach = { canReach: "203.0.113.7" as Ip };
  t.deepEqual(chosen({ interfaces: ["eth0"], ...reach }), eth0);
  t.deepEqual(chosen({ interfaces: ["nowhere"], ...reach }), eth1);
  t.deepEqual(chosen({ patterns: [/^x/u], ...reach }), eth1);
  t.deepEqual(chosen({}), eth0, "the default route's");
});

test("the address that a choice names is the one that is used, of its family", (t) => {
  const second = ["eth0", 1500, "192.0.2.9", undefined, "192.0.2.9", undefined];
  t.deepEqual(chosen({ interfaces: ["192.0.2.9"] }), second);
  t.deepEqual(chosen({ patterns: [/2\.9$/u] }), second);
  t.deepEqual(chosen({ interfaces: ["2001:db8::1"] }, [4, 6]), both);
  // An expression is looked for in addresses of families that count alone.
  t.deepEqual(chosen({ patterns: [/^2001:db8::|eth1/u] }), eth1);
});

test("an overlay of both families, or of IPv6 alone, goes by an interface that has them", (t) => {
  t.deepEqual(chosen({}, [4, 6]), both);
  t.deepEqual(chosen({}, [6]), [
    "six0",
    1400,
    undefined,
    "2001:db8:6::1",
    undefined,
    "2001:db8:6::1",
  ]);
  t.deepEqual(chosen({ patterns: [/^eth1|^six0|^eth0/u] }, [4, 6]), both);
});

test("a public address alone has to be the host's and decides; alongside an interface it may be any", (t) => {
  const publicIp = "10.20.0.1" as Ipv4;
  t.deepEqual(chosen({ publicIp }), eth1);
  t.deepEqual(chosen({ publicIp6: "2001:db8:6::1" as Ipv6 }, [6])[0], "six0");
  const outside = "198.51.100.1" as Ipv4;
  t.throws(() => chosen({ publicIp: outside }), {
    code: "PREFLIGHT_FAILED",
    message: /No interface leads/,
  });
  // Behind a foreign NAT.
  t.deepEqual(chosen({ interfaces: ["eth1"], publicIp: outside }), [
    "eth1",
    9000,
    "10.20.0.1",
    undefined,
    outside,
    undefined,
  ]);
});

test("where no interface fits it is said what was tried, and what there is", (t) => {
  const intended = {
    interfaces: ["nowhere", "six0"],
    patterns: [/^bare$/u],
    canReach: "203.0.113.7" as Ip,
  };
  const error = t.throws(() => chosen(intended, [4, 6]));
  t.true(isPodnetError(error, "PREFLIGHT_FAILED"));
  const { details, field } = error as PodnetError;
  t.is(field, "overlay.interface");
  t.is(
    details["tried"],
    "interface nowhere: none; interface six0: six0 has no address of IPv4; " +
      "interface_regex ^bare$: bare has no address of IPv4; " +
      "can_reach 203.0.113.7: eth1 has no address of IPv6",
  );
  t.is(details["interfaces"], "eth0 eth1 six0 bare");
  const none = t.throws(() => chooseUplink(nothing, { links: [], defaults: {} }, [6]));
  t.is((none as PodnetError).details["tried"], "default route of IPv6: none");
});

test("two choices are the same when all that others see of them is", (t) => {
  const uplink = chooseUplink(nothing, host, [4]);
  t.true(sameUplink(uplink, { ...uplink }));
  for (const other of [{ mtu: 9 }, { index: 9 }, { address: "1.2.3.4" }, { publicIp6: "::1" }])
    t.false(sameUplink(uplink, { ...uplink, ...other } as typeof uplink));
});
