import test from "ava";
import type { Cidr, Ipv4, Ipv6 } from "../../../core/address.ts";
import { parseBackend } from "../../../overlay/flannel/backend.ts";
import {
  type Untried,
  type UntriedBackend,
  type UntriedHost,
  untriedMtu,
  untriedText,
} from "../../../overlay/flannel/untried.ts";
import { type BackendAttributes, leaseValue } from "../../../overlay/flannel/value.ts";

const key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const wireguardData: BackendAttributes = {
  type: "wireguard",
  v4: { publicKey: key, port: 51_820 },
  v6: { publicKey: key, port: 51_821 },
};

const host = (n: number, attributes: BackendAttributes, six = false): UntriedHost => ({
  subnets: { v4: `10.77.${n}.0/24` as Cidr, v6: six ? (`fd00:77:0:${n}::/64` as Cidr) : undefined },
  publicIp: `192.0.2.${n}` as Ipv4,
  publicIp6: six ? (`2001:db8::${n}` as Ipv6) : undefined,
  attributes,
});

const untried = (attributes: BackendAttributes, six = false): Untried => ({
  networks: { v4: "10.77.0.0/16" as Cidr, v6: six ? ("fd00:77::/48" as Cidr) : undefined },
  parent: "eth0",
  parentMtu: 1500,
  own: host(1, attributes, six),
  peers: [host(2, attributes, six), host(3, attributes, six)],
  isDirect: (ip) => ip === "192.0.2.2",
});

const backend = (value: object): UntriedBackend => parseBackend(value) as UntriedBackend;
const psk = "k".repeat(96);

test("what ipip would make: a device to all hosts, and a route to each", (t) => {
  const attributes: BackendAttributes = { type: "ipip" };
  t.is(
    leaseValue("192.0.2.1" as Ipv4, undefined, attributes),
    '{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"ipip"}',
  );
  const device = [
    "link add flannel.ipip type ipip local 192.0.2.1 dev eth0 mtu 1480",
    "address add 10.77.1.0/32 dev flannel.ipip",
  ];
  t.deepEqual(untriedText(backend({ Type: "IPIP" }), untried(attributes)), [
    ...device,
    "route replace 10.77.2.0/24 via 192.0.2.2 dev flannel.ipip onlink",
    "route replace 10.77.3.0/24 via 192.0.2.3 dev flannel.ipip onlink",
  ]);
  t.deepEqual(untriedText(backend({ Type: "ipip", DirectRouting: true }), untried(attributes)), [
    ...device,
    "route replace 10.77.2.0/24 via 192.0.2.2 dev eth0",
    "route replace 10.77.3.0/24 via 192.0.2.3 dev flannel.ipip onlink",
  ]);
});

test("what wireguard would make: a device for each family, or one for both; keys are not shown", (t) => {
  t.is(
    leaseValue("192.0.2.1" as Ipv4, "2001:db8::1" as Ipv6, wireguardData),
    `{"PublicIP":"192.0.2.1","PublicIPv6":"2001:db8::1","BackendType":"wireguard",` +
      `"BackendData":{"PublicKey":"${key}","Port":51820},"BackendV6Data":{"PublicKey":"${key}","Port":51821}}`,
  );
  const separate = untriedText(
    backend({ Type: "wireguard", PSK: "secret", PersistentKeepaliveInterval: 25 }),
    untried(wireguardData, true),
  );
  t.deepEqual(separate, [
    "link add flannel-wg type wireguard mtu 1420",
    "address add 10.77.1.0/32 dev flannel-wg",
    "wg set flannel-wg listen-port 51820 private-key /run/flannel/wgkey",
    `wg set flannel-wg peer ${key} preshared-key (hidden) endpoint 192.0.2.2:51820 persistent-keepalive 25 allowed-ips 10.77.2.0/24`,
    `wg set flannel-wg peer ${key} preshared-key (hidden) endpoint 192.0.2.3:51820 persistent-keepalive 25 allowed-ips 10.77.3.0/24`,
    "route replace 10.77.0.0/16 dev flannel-wg",
    "link add flannel-wg-v6 type wireguard mtu 1420",
    "address add fd00:77:0:1::/128 dev flannel-wg-v6",
    "wg set flannel-wg-v6 listen-port 51821 private-key /run/flannel/wgkey",
    `wg set flannel-wg-v6 peer ${key} preshared-key (hidden) endpoint [2001:db8::2]:51821 persistent-keepalive 25 allowed-ips fd00:77:0:2::/64`,
    `wg set flannel-wg-v6 peer ${key} preshared-key (hidden) endpoint [2001:db8::3]:51821 persistent-keepalive 25 allowed-ips fd00:77:0:3::/64`,
    "route replace fd00:77::/48 dev flannel-wg-v6",
  ]);
  for (const [Mode, endpoint] of [
    ["auto", "192.0.2.2:51820"],
    ["ipv4", "192.0.2.2:51820"],
    ["ipv6", "[2001:db8::2]:51820"],
  ]) {
    const both = untriedText(backend({ Type: "wireguard", Mode }), untried(wireguardData, true));
    t.is(
      both[4],
      `wg set flannel-wg peer ${key} endpoint ${endpoint} allowed-ips 10.77.2.0/24,fd00:77:0:2::/64`,
    );
    t.is(both.filter((line) => line.startsWith("link add")).length, 1);
    t.deepEqual(both.slice(-2), [
      "route replace 10.77.0.0/16 dev flannel-wg",
      "route replace fd00:77::/48 dev flannel-wg",
    ]);
  }
});

test("what ipsec would make: three policies for each host, and a connection of charon's; its key is not shown", (t) => {
  const attributes: BackendAttributes = { type: "ipsec" };
  t.is(
    leaseValue("192.0.2.1" as Ipv4, undefined, attributes),
    '{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"ipsec"}',
  );
  const made = untriedText(backend({ Type: "ipsec", PSK: psk }), untried(attributes));
  t.deepEqual(made.slice(0, 5), [
    "xfrm policy update src 10.77.1.0/24 dst 10.77.2.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 11 mode tunnel",
    "xfrm policy update src 10.77.2.0/24 dst 10.77.1.0/24 dir in tmpl src 192.0.2.2 dst 192.0.2.1 proto esp reqid 11 mode tunnel",
    "xfrm policy update src 10.77.2.0/24 dst 10.77.1.0/24 dir fwd tmpl src 192.0.2.2 dst 192.0.2.1 proto esp reqid 11 mode tunnel",
    "vici load-shared { type = IKE; data = (hidden); owners = [192.0.2.2] }",
    "vici load-conn { 10.77.1.0/24-10.77.2.0/24 { version = 2; local_addrs = [192.0.2.1]; remote_addrs = [192.0.2.2]; " +
      "encap = no; keyingtries = 0; local { auth = psk }; remote { auth = psk }; " +
      "children { 10.77.1.0/24-10.77.2.0/24 { mode = tunnel; reqid = 11; policies = no; start_action = start; " +
      "local_ts = [10.77.1.0/24]; remote_ts = [10.77.2.0/24]; esp_proposals = [aes128gcm16-sha256-prfsha256-ecp256] } } } }",
  ]);
  t.is(made.length, 10);
  t.false(made.join().includes(psk));
});

test("what fits through the backends that are not made", (t) => {
  t.is(untriedMtu(backend({ Type: "ipip" }), 1500), 1480);
  t.is(untriedMtu(backend({ Type: "wireguard" }), 1500), 1420);
  t.is(untriedMtu(backend({ Type: "wireguard", MTU: 1400 }), 1500), 1320);
  t.is(untriedMtu(backend({ Type: "ipsec", PSK: psk }), 1500), 1423);
  t.is(untriedMtu(backend({ Type: "ipsec", PSK: psk, UDPEncap: true }), 1500), 1415);
});

test("hosts without what a backend needs are passed over", (t) => {
  const six = { ...host(4, { type: "ipip" }, true), publicIp: undefined };
  const none = { ...untried({ type: "ipip" }), peers: [six] };
  t.is(untriedText(backend({ Type: "ipip" }), none).length, 2);
  t.deepEqual(untriedText(backend({ Type: "ipip" }), { ...none, own: six }), []);
  t.deepEqual(untriedText(backend({ Type: "ipsec", PSK: psk }), none), []);
  t.deepEqual(untriedText(backend({ Type: "ipsec", PSK: psk }), { ...none, own: six }), []);
  t.is(untriedText(backend({ Type: "wireguard" }), none).length, 4);
});
