import { deepStrictEqual } from "node:assert";
import { configOrTrouble } from "../../../overlay/flannel/config.ts";
import { leaseKey, parseLeaseKey } from "../../../overlay/flannel/key.ts";
import {
  networkPrefix,
  parseOwnPrefix,
  parsePrefix,
  type Prefix,
} from "../../../overlay/flannel/prefix.ts";
import { parseSubnetEnv, subnetEnvText } from "../../../overlay/flannel/subnet-env.ts";
import { attributesOf, leaseValue, parseLeaseValue } from "../../../overlay/flannel/value.ts";
import { readEntry } from "../../../overlay/registry.ts";
import { fits } from "../../../overlay/subnets.ts";
import { choosing, chosen, json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const refusals = ["INVALID_ARGUMENT"] as const;
const prefix = "/coreos.com/network" as Prefix;

/** What is not refused has room for pods. */
function config(bytes: Uint8Array): void {
  const read = configOrTrouble(textOf(bytes));
  if (read instanceof Error) return;
  const { v4, v6 } = read;
  if (v4 === undefined && v6 === undefined) throw new Error("No family");
  const subnet = (space: typeof v4): never => `${space?.first}/${space?.length}` as never;
  const subnets = { v4: v4 && subnet(v4), v6: v6 && subnet(v6) } as never;
  // (What an overlay without IPv4 tells hosts apart by has an end.)
  if (v4 !== undefined && !fits(subnets, read)) throw new Error("Its first subnet does not fit");
}

function key(bytes: Uint8Array): void {
  const subnets = parseLeaseKey(textOf(bytes));
  readEntry({
    key: textOf(bytes),
    value: "{}",
    grant: 0n,
    createRevision: 1n,
    modRevision: 1n,
  });
  if (subnets !== undefined) deepStrictEqual(parseLeaseKey(leaseKey(prefix, subnets)), subnets);
}

/** A backend's data is written as it was read. */
function value(bytes: Uint8Array): void {
  const text = textOf(bytes);
  readEntry({
    key: `${prefix}/subnets/10.1.1.0-24`,
    value: text,
    grant: 0n,
    createRevision: 1n,
    modRevision: 1n,
  });
  const read = parseLeaseValue(text);
  const attributes = read && attributesOf(read);
  if (read === undefined || attributes === undefined) return;
  const again = parseLeaseValue(leaseValue(read.publicIp, read.publicIp6, attributes));
  deepStrictEqual(again?.publicIp, read.publicIp);
  deepStrictEqual(again?.publicIp6, read.publicIp6);
  // (alloc writes no type, and is read as udp, which writes none either.)
  if (again !== undefined && attributes.type !== "alloc" && attributes.type !== "extension")
    deepStrictEqual(attributesOf(again), attributes);
}

function env(bytes: Uint8Array): void {
  const { networks, subnets } = parseSubnetEnv(textOf(bytes));
  if (subnets === undefined) return;
  const text = subnetEnvText({ networks, subnets, mtu: 1450, masquerade: true });
  // The highest address has none above it.
  if (!/\/(?:32|128)$/m.test(text)) deepStrictEqual(parseSubnetEnv(text), { networks, subnets });
}

function prefixes(bytes: Uint8Array): void {
  const text = textOf(bytes);
  for (const read of [
    valueOf(refusals, () => parsePrefix(text)),
    valueOf(refusals, () => networkPrefix(prefix, text)),
    valueOf(refusals, () => parseOwnPrefix(text, prefix)),
  ])
    if (read?.includes("/subnets") === true) throw new Error(`A prefix like ${read}`);
}

const mac = "9e:02:54:f5:a5:79";
const publicKey = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const network = { Network: "10.77.0.0/16" };
const withBackend = (backend: unknown): object => ({ ...network, Backend: backend });

export const overlay: Target = {
  name: "overlay",
  files: [
    "overlay/flannel/json.ts",
    "overlay/flannel/config.ts",
    "overlay/flannel/backend.ts",
    "overlay/flannel/key.ts",
    "overlay/flannel/value.ts",
    "overlay/flannel/prefix.ts",
    "overlay/flannel/subnet-env.ts",
    "overlay/registry.ts",
  ],
  only: [
    "fieldsOf",
    "jsonOf",
    "flagOf",
    "textOf",
    "wholeOf",
    "lastPart",
    "broken",
    "wrongType",
    "parseConfig",
    "spaceOf",
    "networkIn",
    "subnetLength",
    "boundIn",
    "readable",
    "configOrTrouble",
    "parseBackend",
    "isBackendType",
    "mtuOf",
    "wireguardMode",
    "ipsecKey",
    "parseLeaseKey",
    "subnetOf",
    "parseLeaseValue",
    "addressIn",
    "attributesOf",
    "vxlanOf",
    "wireguardOf",
    "isWhole",
    "checked",
    "isReserved",
    "parsePrefix",
    "parseOwnPrefix",
    "networkPrefix",
    "parseSubnetEnv",
    "readEntry",
  ],
  seeds: [
    ...[
      network,
      { ...network, EnableIPv6: true, IPv6Network: "fd00:77::/48", SubnetLen: 26 },
      { ...network, EnableIPv6: true },
      { EnableIPv4: false },
      { EnableIPv4: false, EnableIPv6: true, IPv6Network: "fd00::/125" },
      {
        EnableIPv4: false,
        EnableIPv6: true,
        IPv6Network: "fd00::/60",
        IPv6SubnetMin: "fd00:0:0:2::",
      },
      { ...network, SubnetMin: "10.77.9.0", SubnetMax: "10.77.8.0" },
      { ...network, SubnetMin: "10.78.0.0" },
      { ...network, SubnetMin: "10.77.0.1" },
      { ...network, SubnetMax: "fd00::" },
      { ...network, SubnetMax: "x" },
      { ...network, SubnetLen: 31 },
      { ...network, SubnetLen: 17 },
      { ...network, SubnetLen: -1 },
      { ...network, SubnetLen: "24" },
      { ...network, EnableNFTables: "yes" },
      { Network: 5 },
      { Network: "x" },
      { Network: "10.0.0.0/29" },
      withBackend(5),
      withBackend({ Type: "vxlan", VNI: 7, MTU: 1400, Learning: true }),
      withBackend({ Type: "vxlan", VNI: null, MTU: 5 }),
      withBackend({ Type: "host-gw" }),
      withBackend({ Type: "UDP", Port: 9000 }),
      withBackend({ Type: "alloc" }),
      withBackend({ Type: "ipip", DirectRouting: true }),
      withBackend({ Type: "wireguard", Mode: "ipv4", PSK: "x" }),
      withBackend({ Type: "wireguard" }),
      withBackend({ Type: "wireguard", Mode: "x" }),
      withBackend({ Type: "ipsec", PSK: "k".repeat(96) }),
      withBackend({ Type: "ipsec" }),
      withBackend({ Type: "extension", PreStartupCommand: "echo" }),
      withBackend({ Type: "gue" }),
      [],
    ].map((one) => chosen(0, json(one))),
    chosen(0, utf8("{")),
    ...[
      "10.77.34.0-24",
      "10.77.34.0-24&fd00:77:0:a::-64",
      "0.0.0.0-0&fd00:77:0:a::-64",
      "0.0.0.0-0",
      "10.77.34.1-24",
      "10.77.34.0-24&zz-64",
      "10.77.34.0-24&fd00::1-64",
      "garbage",
      "9".repeat(600),
    ].map((text) => chosen(1, utf8(`${prefix}/subnets/${text}`))),
    ...[
      { PublicIP: "10.0.0.1", PublicIPv6: null },
      {
        PublicIP: "10.0.0.1",
        PublicIPv6: "fd00::1",
        BackendType: "vxlan",
        BackendData: { VNI: 1, VtepMAC: mac },
      },
      {
        PublicIP: "10.0.0.1",
        BackendType: "vxlan",
        BackendData: { VtepMAC: mac },
        BackendV6Data: { VtepMAC: 5 },
      },
      { PublicIP: "10.0.0.1", BackendType: "vxlan", BackendData: { VtepMAC: mac, VNI: -1 } },
      { PublicIP: "10.0.0.1", BackendType: "vxlan", BackendData: { VtepMAC: "x" } },
      { PublicIP: "10.0.0.1", BackendType: "vxlan", BackendData: 5 },
      {
        PublicIP: "10.0.0.1",
        BackendType: "wireguard",
        BackendData: { PublicKey: publicKey, Port: 5 },
      },
      { PublicIP: "10.0.0.1", BackendType: "wireguard", BackendData: { PublicKey: "x", Port: 5 } },
      { PublicIP: "10.0.0.1", BackendType: "wireguard", BackendData: { PublicKey: publicKey } },
      { PublicIP: "10.0.0.1", BackendType: "wireguard", BackendV6Data: 5 },
      { PublicIP: "10.0.0.1", BackendType: "extension", BackendData: "<&>" },
      { PublicIP: "10.0.0.1", BackendType: "extension", BackendData: 5 },
      ...["host-gw", "ipip", "ipsec", "alloc", "udp", "gue"].map((BackendType) => ({
        PublicIP: "10.0.0.1",
        BackendType,
      })),
      { PublicIP: 5 },
      { PublicIP: "fd00::1" },
      { PublicIP: "x" },
      { BackendType: 5 },
      [],
    ].map((one) => chosen(2, json(one))),
    ...[
      "FLANNEL_NETWORK=10.77.0.0/16\nFLANNEL_SUBNET=10.77.37.1/24\nFLANNEL_MTU=1450\n",
      "FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:1::1/64\n",
      "FLANNEL_SUBNET=fd00::1/64\n# x\n=\n",
    ].map((text) => chosen(3, utf8(text))),
    ...[
      "/coreos.com/network",
      "/podnet",
      "/a/subnets/b",
      "green",
      "subnets",
      "x/y",
      "/coreos.com",
    ].map((text) => chosen(4, utf8(text))),
  ],
  words: [
    '"Network":',
    '"SubnetLen":',
    '"SubnetMin":"10.77.9.0"',
    '"Backend":{"Type":"',
    "vxlan",
    "0.0.0.0-0&",
    "-24",
    "fd00::",
    '"PublicIP":"',
    "FLANNEL_",
    "/subnets",
    "__proto__",
  ],
  longest: 1024,
  run: choosing([config, key, value, env, prefixes]),
};
