import { readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { parseCidr, parseIpPrefix, parseMac } from "../../../../core/address.ts";
import { isPodnetError } from "../../../../core/errors.ts";
import { parseIfName } from "../../../../core/names.ts";
import { loopbackAddresses } from "../../../../daemon/verify/loopback-addresses.ts";
import { comparePod } from "../../../../daemon/verify/compare.ts";
import type { ExpectedInterface } from "../../../../daemon/verify/expectation.ts";
import {
  type HostReport,
  parseHostReport,
  parseVmReport,
  type VmReport,
} from "../../../../daemon/verify/source-reports.ts";

const expected: ExpectedInterface = {
  tap: parseIfName("pnabcdefghijkl0"),
  bridge: parseIfName("hyper0"),
  alias: "podnet:pod:abcdefghijkl:0",
  isolated: false,
  mtu: 1500,
  addresses: [parseIpPrefix("192.168.123.2/24")],
  gateways: [parseIpPrefix("192.168.123.1/24")],
  routes: [parseCidr("192.168.123.0/24")],
  nicId: "nic0",
  netdevId: "net0",
  mac: parseMac("52:54:00:12:34:56"),
  slot: 1,
};

const host: HostReport = {
  links: [
    { name: "hyper0", index: 2, up: true, mtu: 1500, group: 0, kind: "bridge" },
    {
      name: expected.tap,
      index: 3,
      up: true,
      mtu: 1500,
      group: 2036822107,
      alias: expected.alias,
      master: "hyper0",
      kind: "tun",
      isolated: false,
    },
  ],
  addresses: [{ link: "hyper0", address: "192.168.123.1", length: 24 }],
  routes: [
    { destination: "192.168.123.0/24", link: "eth9", gateway: "10.0.0.1", table: 254 },
    { destination: "192.168.123.0/24", link: "lo", table: 255 },
    { destination: "192.168.123.0/24", link: "hyper0", table: 254 },
  ],
  queues: [],
  redirects: [],
};

const vm: VmReport = {
  status: "running",
  nics: [
    {
      id: "nic0",
      driver: "virtio-net-pci",
      mac: "52:54:00:12:34:56",
      netdev: "net0",
      address: "01.0",
    },
  ],
  pci: [{ id: "nic0", bus: 1, slot: 1 }],
};

test("what agrees agrees in every line, in a fixed order", (t) => {
  const checks = comparePod([expected], host, vm);
  t.deepEqual(
    checks.filter(({ ok }) => !ok),
    [],
  );
  t.deepEqual(
    checks.map(({ subject, found }) => `${subject} = ${found}`),
    [
      "link hyper0 kind = bridge",
      "link hyper0 up = yes",
      "link pnabcdefghijkl0 kind = tun",
      "link pnabcdefghijkl0 master = hyper0",
      "link pnabcdefghijkl0 up = yes",
      "link pnabcdefghijkl0 mtu = 1500",
      "link pnabcdefghijkl0 alias = podnet:pod:abcdefghijkl:0",
      "link pnabcdefghijkl0 group = 2036822107",
      "link pnabcdefghijkl0 isolated = no",
      "address 192.168.123.1/24 on hyper0 = yes",
      "route 192.168.123.0/24 by = hyper0",
      "address 192.168.123.2 on the host = absent",
      "vm status = running",
      "nic nic0 mac = 52:54:00:12:34:56",
      "nic nic0 netdev = net0",
      "nic nic0 slot = 1",
      "nics beyond the record = absent",
    ],
  );
});

test("nothing there is a difference in every interface, said briefly", (t) => {
  const nothing = { links: [], addresses: [], routes: [], queues: [], redirects: [] };
  const checks = comparePod([expected], nothing, { status: "paused", nics: [], pci: [] });
  const wrong = checks.filter(({ ok }) => !ok).map(({ subject }) => subject);
  t.deepEqual(wrong, [
    "link hyper0 kind",
    "link hyper0 up",
    "link pnabcdefghijkl0 kind",
    "address 192.168.123.1/24 on hyper0",
    "route 192.168.123.0/24 by",
    "vm status",
    "nic nic0 mac",
  ]);
  const [kind] = checks.filter(({ ok }) => !ok);
  t.like(kind, { wanted: "bridge", found: "absent" });
  const status = checks.find(({ subject }) => subject === "vm status");
  t.like(status, { wanted: "running", found: "paused" });
});

test("a card on the bus without an id, and a slot that QEMU does not report", (t) => {
  const [nic] = vm.nics;
  const { address: _, ...withoutAddress } = nic as NonNullable<typeof nic>;
  const checks = comparePod([expected], host, {
    ...vm,
    nics: [withoutAddress],
    pci: [...vm.pci, { id: "", bus: 1, slot: 2 }],
  });
  t.deepEqual(
    checks.filter(({ ok }) => !ok).map(({ subject, found }) => `${subject}: ${found}`),
    ["nics beyond the record: without id"],
  );
  t.false(checks.some(({ subject }) => subject.endsWith("slot")));
});

test("a port's one VLAN, and that it is not to learn, are compared where they were asked for", (t) => {
  const asked = { ...expected, learning: false, vlan: 7 };
  const found = (learning: boolean, ...vlans: string[]): string[] => {
    const links = host.links.map((link) => ({ ...link, learning, vlans }));
    return comparePod([asked], { ...host, links }, vm)
      .filter(({ ok }) => !ok)
      .map((check) => `${check.subject}: ${check.found} instead of ${check.wanted}`);
  };
  const { tap } = expected;
  t.deepEqual(found(false, "7 untagged"), []);
  t.deepEqual(found(true, "7 untagged"), [`link ${tap} learning: yes instead of no`]);
  for (const vlans of [["8 untagged"], ["7 tagged not by default"], ["7 untagged", "9 tagged"]])
    t.deepEqual(found(false, ...vlans), [
      `link ${tap} VLANs: ${vlans.join(", ")} instead of 7 untagged`,
    ]);
});

test("an interface's limits are compared, and so is one that is not asked for", (t) => {
  const limited = {
    ...expected,
    ifb: parseIfName("piabcdefghijkl0"),
    rates: {
      toGuest: { bitsPerSecond: 100_000_000, packetsPerSecond: 10_000 },
      fromGuest: { bitsPerSecond: 8_000_001 },
    },
  };
  const { tap, ifb } = limited;
  const queues = [
    { link: tap, bytesPerSecond: 655_350_000, leastCost: 65_535 },
    { link: tap, bytesPerSecond: 12_500_000, leastCost: 0 },
    { link: ifb, bytesPerSecond: 1_000_000, leastCost: 0 },
  ];
  const redirects = [{ link: tap, to: ifb }];
  const differing = (of: ExpectedInterface, more: Partial<HostReport>): string[] =>
    comparePod([of], { ...host, ...more }, vm)
      .filter(({ ok }) => !ok)
      .map((check) => `${check.subject}: ${check.found} instead of ${check.wanted}`);
  t.deepEqual(differing(limited, { queues, redirects }), []);
  t.deepEqual(differing({ ...expected, ifb }, { queues: [], redirects: [] }), []);
  const both = "10000 packets a second, 12500000 bytes a second";
  t.deepEqual(differing({ ...expected, ifb }, { queues, redirects }), [
    `limit into ${tap}: ${both} instead of absent`,
    `limit out of ${tap}: 1000000 bytes a second instead of absent`,
    `frames out of ${tap} go by: ${ifb} instead of absent`,
  ]);
  t.deepEqual(differing(limited, { queues: queues.slice(1), redirects: [] }), [
    `limit into ${tap}: 12500000 bytes a second instead of ${both}`,
    `frames out of ${tap} go by: absent instead of ${ifb}`,
  ]);
});

test("a report that is not understood is an error, not a crash", (t) => {
  t.deepEqual(parseHostReport(JSON.stringify(host)), host);
  t.deepEqual(parseVmReport(JSON.stringify(vm)), vm);
  for (const text of ["", "null", "{", '{"status":1}', JSON.stringify({ ...vm, extra: 1 })]) {
    for (const parse of [parseHostReport, parseVmReport])
      t.true(
        isPodnetError(
          t.throws(() => parse(text)),
          "COMMAND_FAILED",
        ),
      );
  }
});

test("the sources share no code with podnet", (t) => {
  const directory = path.join(import.meta.dirname, "../../../../daemon/verify");
  const imports = (file: string): string[] => {
    const text = readFileSync(path.join(directory, file), "utf8");
    t.notRegex(text, /\bimport\(|\brequire\(|createRequire/);
    return [...text.matchAll(/^import .*?from "([^"]+)";$/gm)].map((match) => match[1] as string);
  };
  t.deepEqual(imports("host-source.ts"), ["netlink"]);
  t.deepEqual(imports("vm-source.ts"), ["node:path", "node:timers/promises", "qemu-qmp"]);
  t.deepEqual(imports("rules-source.ts"), [
    "node:fs",
    "./rules-source-guard.ts",
    "./rules-source-reader.ts",
  ]);
  t.deepEqual(imports("rules-source-reader.ts"), []);
  t.deepEqual(imports("rules-source-guard.ts"), ["./rules-source-reader.ts"]);
  t.deepEqual(imports("sockets-source.ts"), ["node:fs"]);
});

test("addresses of lo are read from what ip prints, but those that each lo has", (t) => {
  const printed = [
    "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever",
    "1: lo    inet 10.7.0.1/32 scope global lo\\       valid_lft forever preferred_lft forever",
    "1: lo    inet6 fd07::1/128 scope global \\       valid_lft forever preferred_lft forever",
    "1: lo    inet6 ::1/128 scope host \\       valid_lft forever preferred_lft forever",
    "1: lo    inet 10.7.0.2 peer 10.7.0.9/32 scope global lo",
  ].join("\n");
  t.deepEqual(loopbackAddresses(printed), ["10.7.0.1/32", "fd07::1/128", "10.7.0.2/32"]);
});
