import test from "ava";
import fc from "fast-check";
import { type Cidr, ipFromBigInt, type Ipv4, type Ipv6, type Mac } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { configOrTrouble, parseConfig } from "../../../overlay/flannel/config.ts";
import { leaseKey, parseLeaseKey, type Subnets } from "../../../overlay/flannel/key.ts";
import {
  configKey,
  leasesPrefix,
  networkPrefix,
  parseOwnPrefix,
  parsePrefix,
} from "../../../overlay/flannel/prefix.ts";
import { parseSubnetEnv, subnetEnvText } from "../../../overlay/flannel/subnet-env.ts";
import {
  attributesOf,
  type BackendAttributes,
  leaseValue,
  parseLeaseValue,
} from "../../../overlay/flannel/value.ts";

const prefix = parsePrefix("/coreos.com/network");
const ip = "192.168.77.1" as Ipv4;
const ip6 = "fd00:77::1" as Ipv6;
const mac = "9e:02:54:f5:a5:79" as Mac;

test("flannel's defaults: without a backend it is udp, without a length /24, the first subnet is left out", (t) => {
  t.deepEqual(parseConfig('{"Network":"10.77.0.0/16"}'), {
    v4: { network: "10.77.0.0/16", length: 24, first: "10.77.1.0", last: "10.77.255.0" },
    v6: undefined,
    nftables: false,
    backend: { type: "udp", port: 8285 },
  } as never);
  t.is(parseConfig('{"Network":"10.77.0.0/23"}').v4?.length, 25);
  t.is(parseConfig('{"Network":"10.77.0.0/28"}').v4?.length, 30);
  const dual = parseConfig(
    '{"Network":"10.77.5.5/16","EnableIPv6":true,"IPv6Network":"fd00:77:0::9/48","IPv6SubnetMin":"fd00:77:0:5::"}',
  );
  t.is(dual.v4?.network, "10.77.0.0/16" as Cidr);
  t.deepEqual(dual.v6, {
    network: "fd00:77::/48",
    length: 64,
    first: "fd00:77:0:5::",
    last: "fd00:77:0:ffff::",
  } as never);
  t.is(
    parseConfig('{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/63"}').v4,
    undefined,
  );
});

test("names are read in any case, as are types of backends; what is null is not given", (t) => {
  const config = parseConfig(
    '{"NETWORK":"10.77.0.0/16","subnetlen":26,"SubnetMin":null,"enableNFTables":true,"backend":{"TYPE":"VXLAN","vni":7,"directrouting":true,"GBP":null}}',
  );
  t.is(config.v4?.length, 26);
  t.true(config.nftables);
  t.deepEqual(config.backend, {
    type: "vxlan",
    vni: 7,
    port: 0,
    mtu: undefined,
    gbp: false,
    learning: false,
    directRouting: true,
  });
});

test("each backend has its options and flannel's defaults", (t) => {
  const backend = (text: string) =>
    parseConfig(`{"Network":"10.77.0.0/16","Backend":${text}}`).backend as unknown;
  t.deepEqual(backend('{"Type":"host-gw"}'), { type: "host-gw" });
  t.deepEqual(backend('{"Type":"alloc"}'), { type: "alloc" });
  t.deepEqual(backend('{"Type":"udp","Port":9000}'), { type: "udp", port: 9000 });
  t.deepEqual(backend('{"Type":"ipip","DirectRouting":true}'), {
    type: "ipip",
    directRouting: true,
  });
  t.deepEqual(backend('{"Type":"wireguard"}'), {
    type: "wireguard",
    listenPort: 51_820,
    listenPortV6: 51_821,
    psk: "",
    keepaliveSeconds: 0,
    mode: "separate",
    mtu: undefined,
  });
  t.deepEqual(backend(`{"Type":"ipsec","PSK":"${"k".repeat(96)}"}`), {
    type: "ipsec",
    psk: "k".repeat(96),
    udpEncap: false,
    espProposal: "aes128gcm16-sha256-prfsha256-ecp256",
  });
  t.deepEqual(backend('{"Type":"extension","PreStartupCommand":"echo hi"}'), {
    type: "extension",
    preStartup: "echo hi",
    postStartup: "",
    subnetAdd: "",
    subnetRemove: "",
  });
});

const broken: Readonly<Record<string, readonly string[]>> = {
  json: ["", "5", "[]", "{"],
  type: [
    '{"Network":5}',
    '{"Network":"10.0.0.0/16","SubnetLen":"24"}',
    '{"Network":"10.0.0.0/16","SubnetLen":24.5}',
    '{"Network":"10.0.0.0/16","EnableIPv6":"yes"}',
    '{"Network":"10.0.0.0/16","Backend":"vxlan"}',
  ],
  families: ['{"EnableIPv4":false}'],
  "network-missing": ["{}", '{"Network":"10.0.0.0/16","EnableIPv6":true}'],
  network: ['{"Network":"10.0.0.0"}', '{"Network":"fd00::/48"}'],
  "network-small": ['{"Network":"10.0.0.0/29"}'],
  "subnet-small": ['{"Network":"10.0.0.0/16","SubnetLen":31}'],
  "subnet-large": ['{"Network":"10.0.0.0/16","SubnetLen":17}'],
  bound: ['{"Network":"10.0.0.0/16","SubnetMin":"x"}'],
  "bound-outside": [
    '{"Network":"10.0.0.0/16","SubnetMin":"10.1.0.0"}',
    '{"Network":"10.0.0.0/16","SubnetMax":"fd00::"}',
  ],
  "bound-inside": ['{"Network":"10.0.0.0/16","SubnetMax":"10.0.9.1"}'],
  order: ['{"Network":"10.0.0.0/16","SubnetMin":"10.0.9.0","SubnetMax":"10.0.8.0"}'],
  range: ['{"Network":"10.0.0.0/16","Backend":{"Type":"vxlan","VNI":16777216}}'],
  backend: ['{"Network":"10.0.0.0/16","Backend":{"Type":"gue"}}'],
  "wireguard-mode": ['{"Network":"10.0.0.0/16","Backend":{"Type":"wireguard","Mode":"x"}}'],
  "ipsec-key": ['{"Network":"10.0.0.0/16","Backend":{"Type":"ipsec","PSK":"short"}}'],
};
for (const [rule, texts] of Object.entries(broken))
  test(`a configuration that breaks the rule ${rule} is refused by its name`, (t) => {
    for (const text of texts) {
      const trouble = configOrTrouble(text);
      t.true(isPodnetError(trouble, "OVERLAY_CONFIG_INVALID"), text);
      if (isPodnetError(trouble)) t.is(trouble.details["rule"], rule, text);
    }
  });

test("keys are flannel's", (t) => {
  const key = (text: string) => `/coreos.com/network/subnets/${text}`;
  const cases: readonly [string, Subnets][] = [
    ["10.77.34.0-24", { v4: "10.77.34.0/24" as Cidr, v6: undefined }],
    [
      "10.77.34.0-24&fd00:77:0:a::-64",
      { v4: "10.77.34.0/24" as Cidr, v6: "fd00:77:0:a::/64" as Cidr },
    ],
    ["0.0.0.0-0&fd00:77:0:a::-64", { v4: undefined, v6: "fd00:77:0:a::/64" as Cidr }],
  ];
  for (const [text, subnets] of cases) {
    t.is(leaseKey(prefix, subnets), key(text));
    t.deepEqual(parseLeaseKey(key(text)), subnets);
  }
  // Whatever stands before, as flannel's pattern has it.
  t.deepEqual(parseLeaseKey("10.77.34.0-24")?.v4, "10.77.34.0/24" as Cidr);
  for (const text of [
    "garbage",
    "10.77.34.0-33",
    "10.77.34.1-24",
    "10.77.34.256-24",
    "010.77.34.0-24",
    "0.0.0.0-0",
    "10.77.34.0-24&zz-64",
    "10.77.34.0-24&fd00:77:0:a::1-64",
    "10.77.34.0-24 ",
    `${"9".repeat(600)}.1.1.0-24`,
  ])
    t.is(parseLeaseKey(key(text)), undefined, text);
});

test("values are flannel's, byte for byte", (t) => {
  const b64 = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
  const cases: readonly [BackendAttributes, boolean, string][] = [
    [
      { type: "vxlan", v4: { vni: 1, mac }, v6: undefined },
      false,
      '{"PublicIP":"192.168.77.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"9e:02:54:f5:a5:79"}}',
    ],
    [
      { type: "vxlan", v4: { vni: 1, mac }, v6: { vni: 1, mac } },
      true,
      '{"PublicIP":"192.168.77.1","PublicIPv6":"fd00:77::1","BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"9e:02:54:f5:a5:79"},"BackendV6Data":{"VNI":1,"VtepMAC":"9e:02:54:f5:a5:79"}}',
    ],
    [
      { type: "host-gw" },
      false,
      '{"PublicIP":"192.168.77.1","PublicIPv6":null,"BackendType":"host-gw"}',
    ],
    [{ type: "udp" }, false, '{"PublicIP":"192.168.77.1","PublicIPv6":null}'],
    [{ type: "alloc" }, false, '{"PublicIP":"192.168.77.1","PublicIPv6":null}'],
    [{ type: "ipip" }, false, '{"PublicIP":"192.168.77.1","PublicIPv6":null,"BackendType":"ipip"}'],
    [
      { type: "ipsec" },
      false,
      '{"PublicIP":"192.168.77.1","PublicIPv6":null,"BackendType":"ipsec"}',
    ],
    [
      {
        type: "wireguard",
        v4: { publicKey: b64, port: 51_820 },
        v6: { publicKey: b64, port: 51_821 },
      },
      true,
      `{"PublicIP":"192.168.77.1","PublicIPv6":"fd00:77::1","BackendType":"wireguard","BackendData":{"PublicKey":"${b64}","Port":51820},"BackendV6Data":{"PublicKey":"${b64}","Port":51821}}`,
    ],
    // Go escapes what could end a script in HTML.
    [
      { type: "extension", output: "a<b>&\n\ud800\u2028" },
      false,
      '{"PublicIP":"192.168.77.1","PublicIPv6":null,"BackendType":"extension","BackendData":"a\\u003cb\\u003e\\u0026\\n\ufffd\\u2028"}',
    ],
    [
      { type: "extension", output: undefined },
      false,
      '{"PublicIP":"192.168.77.1","PublicIPv6":null,"BackendType":"extension"}',
    ],
  ];
  for (const [attributes, dual, text] of cases) {
    t.is(leaseValue(ip, dual ? ip6 : undefined, attributes), text);
    const value = parseLeaseValue(text);
    t.is(value?.publicIp, ip);
    t.is(value?.publicIp6, dual ? ip6 : undefined);
    if (value !== undefined && attributes.type !== "alloc" && attributes.type !== "extension")
      t.deepEqual(attributesOf(value), attributes);
  }
  t.is(
    leaseValue(undefined, ip6, { type: "host-gw" }),
    '{"PublicIP":"0.0.0.0","PublicIPv6":"fd00:77::1","BackendType":"host-gw"}',
  );
});

test("values of older and newer hosts are read, broken ones are not", (t) => {
  const old = parseLeaseValue(
    '{"PublicIP":"192.168.77.1","BackendType":"vxlan","BackendData":{"VtepMAC":"9E:02:54:f5:a5:79"}}',
  );
  t.deepEqual(old && attributesOf(old), {
    type: "vxlan",
    v4: { vni: undefined, mac },
    v6: undefined,
  });
  t.is(parseLeaseValue('{"PublicIP":"10.0.0.1","Zone":{"a":1}}')?.publicIp, "10.0.0.1" as Ipv4);
  t.is(parseLeaseValue('{"publicip":"0.0.0.0"}')?.publicIp, undefined);
  for (const text of [
    "",
    "garbage",
    "[]",
    '{"PublicIP":5}',
    '{"PublicIP":"fd00::1"}',
    '{"PublicIP":"1.2.3"}',
    '{"PublicIPv6":"1.2.3.4"}',
    '{"BackendType":5}',
  ])
    t.is(parseLeaseValue(text), undefined, text);
  const attributes = (type: string, data: unknown) =>
    attributesOf({
      publicIp: ip,
      publicIp6: undefined,
      backendType: type,
      backendData: data,
      backendV6Data: undefined,
    });
  t.is(attributes("vxlan", { VNI: 1 }), undefined);
  t.is(attributes("vxlan", { VNI: -1, VtepMAC: mac }), undefined);
  t.is(attributes("vxlan", { VtepMAC: "x" }), undefined);
  t.is(attributes("wireguard", { PublicKey: "short", Port: 1 }), undefined);
  t.is(attributes("gue", {}), undefined);
  t.deepEqual(attributes("VXLAN", undefined), { type: "vxlan", v4: undefined, v6: undefined });
});

test("subnet.env is flannel's, and read again", (t) => {
  const v4 = { networks: "10.77.0.0/16" as Cidr, subnet: "10.77.37.0/24" as Cidr };
  const v6 = { networks: "fd00:77::/48" as Cidr, subnet: "fd00:77:0:a::/64" as Cidr };
  t.is(
    subnetEnvText({
      networks: { v4: v4.networks, v6: undefined },
      subnets: { v4: v4.subnet, v6: undefined },
      mtu: 1450,
      masquerade: true,
    }),
    "FLANNEL_NETWORK=10.77.0.0/16\nFLANNEL_SUBNET=10.77.37.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
  );
  const dual = {
    networks: { v4: v4.networks, v6: v6.networks },
    subnets: { v4: v4.subnet, v6: v6.subnet },
  };
  const text = subnetEnvText({ ...dual, mtu: 1430, masquerade: false });
  t.true(text.includes("FLANNEL_IPV6_SUBNET=fd00:77:0:a::1/64\n"));
  t.deepEqual(parseSubnetEnv(text), dual);
  t.deepEqual(parseSubnetEnv("FLANNEL_IPV6_SUBNET=fd00:77:0:a::1/64").subnets, {
    v4: undefined,
    v6: v6.subnet,
  });
  t.deepEqual(parseSubnetEnv("# nothing\nFLANNEL_SUBNET=fd00::1/64\nFLANNEL_MTU=9\n"), {
    networks: { v4: undefined, v6: undefined },
    subnets: undefined,
  });
});

test("no prefix can come near to what flannel watches", (t) => {
  t.is(configKey(prefix), "/coreos.com/network/config");
  t.is(leasesPrefix(networkPrefix(prefix, "green")), "/coreos.com/network/green/subnets");
  for (const text of [
    "",
    "/",
    "network",
    "/a/",
    "/a//b",
    "/a/subnets",
    "/a/subnets-of-mine/b",
    "/a/config",
    "/a/../b",
    `/${"a".repeat(200)}`,
    "/a b",
  ])
    t.throws(() => parsePrefix(text), { code: "INVALID_ARGUMENT" } as never, text);
  for (const name of ["subnets", "subnetsfoo", "config", "a/b", "A"])
    t.throws(() => networkPrefix(prefix, name), { code: "INVALID_ARGUMENT" } as never, name);
  t.is(parseOwnPrefix("/podnet", prefix), "/podnet" as never);
  for (const text of ["/coreos.com/network", "/coreos.com/network/podnet", "/coreos.com"])
    t.throws(() => parseOwnPrefix(text, prefix), { code: "INVALID_ARGUMENT" } as never, text);
});

test("whatever the subnets are, a key is read as it was written", (t) => {
  const v4 = fc.tuple(fc.nat(0xfe00), fc.integer({ min: 8, max: 30 })).map(([high, length]) => {
    const base = ((BigInt(high + 256) << 16n) >> BigInt(32 - length)) << BigInt(32 - length);
    return `${ipFromBigInt(4, base)}/${length}` as Cidr;
  });
  const v6 = fc
    .tuple(fc.bigInt({ min: 1n, max: (1n << 64n) - 1n }), fc.integer({ min: 64, max: 126 }))
    .map(([high, length]) => `${ipFromBigInt(6, high << 64n)}/${length}` as Cidr);
  const subnets: fc.Arbitrary<Subnets> = fc.oneof(
    v4.map((one) => ({ v4: one, v6: undefined })),
    v6.map((one) => ({ v4: undefined, v6: one })),
    fc.tuple(v4, v6).map(([a, b]) => ({ v4: a, v6: b })),
  );
  t.notThrows(() =>
    fc.assert(
      fc.property(subnets, (each) => {
        t.deepEqual(parseLeaseKey(leaseKey(prefix, each)), each);
      }),
      { numRuns: 300 },
    ),
  );
});
