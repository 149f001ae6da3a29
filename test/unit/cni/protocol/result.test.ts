import test from "ava";
import fc from "fast-check";
import { familyOf, ipOf } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { CniResult } from "../../../../cni/protocol/result.ts";
import { parseResult } from "../../../../cni/protocol/result-read.ts";
import { renderResult, resultValue } from "../../../../cni/protocol/result-write.ts";
import {
  atLeast,
  type CniVersion,
  cniVersions,
  parseVersion,
} from "../../../../cni/protocol/version.ts";

/** What the reference plugins answer, bridge with host-local, both families (measured). */
const lists = {
  interfaces: [
    { name: "cni0", mac: "5a:94:ef:e4:0c:ee" },
    { name: "veth1", mac: "5a:94:ef:e4:0c:ef" },
    { name: "eth0", mac: "0a:58:0a:44:00:02", sandbox: "/var/run/netns/blue" },
  ],
  routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0", gw: "fd00:44::1" }],
  dns: { nameservers: ["10.68.0.1"], search: ["svc.local"] },
};
const v4 = { address: "10.68.0.2/24", gateway: "10.68.0.1" };
const v6 = { address: "fd00:44::2/64", gateway: "fd00:44::1" };
const old = {
  ip4: { ip: v4.address, gateway: v4.gateway, routes: [{ dst: "0.0.0.0/0" }] },
  ip6: { ip: v6.address, gateway: v6.gateway, routes: [{ dst: "::/0", gw: "fd00:44::1" }] },
  dns: lists.dns,
};
const middle = {
  ...lists,
  ips: [
    { version: "4", interface: 2, ...v4 },
    { version: "6", interface: 2, ...v6 },
  ],
};
const late = {
  ...lists,
  ips: [
    { interface: 2, ...v4 },
    { interface: 2, ...v6 },
  ],
};

const golden: Readonly<Record<CniVersion, object>> = {
  "0.1.0": { cniVersion: "0.1.0", ...old },
  "0.2.0": { cniVersion: "0.2.0", ...old },
  "0.3.0": { cniVersion: "0.3.0", ...middle },
  "0.3.1": { cniVersion: "0.3.1", ...middle },
  "0.4.0": { cniVersion: "0.4.0", ...middle },
  "1.0.0": { cniVersion: "1.0.0", ...late },
  "1.1.0": { cniVersion: "1.1.0", ...late },
};

for (const from of cniVersions)
  for (const to of cniVersions)
    test(`a result of ${from} becomes the one of ${to} that runtimes know`, (t) => {
      const read = parseResult(golden[from], from);
      const written: unknown = JSON.parse(renderResult(read, to));
      // Before 0.3.0 there are no interfaces, so none come out of it.
      const bare = (value: object): object => {
        const {
          interfaces: _interfaces,
          ips = [],
          ...rest
        } = value as {
          interfaces?: unknown;
          ips?: object[];
        };
        return {
          ...rest,
          ips: ips.map((ip) => {
            const { interface: _index, ...own } = ip as { interface?: number };
            return own;
          }),
        };
      };
      const lossy = !atLeast(from, "0.3.0") && atLeast(to, "0.3.0");
      if (lossy) t.deepEqual(bare(written as object), bare(golden[to]));
      else t.deepEqual(written as object, golden[to]);
    });

test("what 1.1.0 has more is in no older result", (t) => {
  const newest = {
    cniVersion: "1.1.0",
    interfaces: [{ name: "net1", mtu: 1400, socketPath: "/run/s", pciID: "0000:00:05.0" }],
    ips: [{ address: "10.0.0.2/24" }],
    routes: [
      {
        dst: "0.0.0.0/0",
        gw: "10.0.0.1",
        mtu: 1300,
        advmss: 1200,
        priority: 5,
        table: 7,
        scope: 0,
      },
    ],
    dns: {},
  };
  const read = parseResult(newest, "1.1.0");
  t.deepEqual(JSON.parse(renderResult(read, "1.1.0")), newest);
  for (const version of ["0.4.0", "1.0.0"] as const) {
    const written = JSON.parse(renderResult(read, version)) as Record<string, unknown>;
    t.deepEqual(written["interfaces"], [{ name: "net1" }]);
    t.deepEqual(written["routes"], [{ dst: "0.0.0.0/0", gw: "10.0.0.1" }]);
  }
});

test("before 0.3.0 a result is the first address of each family, and without one there is none", (t) => {
  const read = parseResult(
    { ips: [{ address: "10.0.0.2/24" }, { address: "10.0.0.3/24" }], routes: [{ dst: "::/0" }] },
    "1.0.0",
  );
  t.deepEqual(resultValue(read, "0.2.0"), {
    cniVersion: "0.2.0",
    ip4: { ip: "10.0.0.2/24" },
    dns: {},
  });
  const error = t.throws(() => renderResult({ ...read, ips: [] }, "0.1.0"), {
    instanceOf: PodnetError,
  });
  t.is(error.details["cni"], 1);
});

test("a result is read as plugins of others write it", (t) => {
  const read = parseResult(
    {
      CNIVersion: "0.4.0",
      Interfaces: null,
      ips: [{ Address: "10.0.0.2/24", gateway: "", interface: -1 }],
      routes: [{ dst: "10.1.2.3/8", gw: null, mtu: 0 }],
    },
    "1.0.0",
  );
  t.deepEqual(read as object, {
    interfaces: [],
    ips: [{ address: "10.0.0.2/24" }],
    // With host bits, which the kernel refuses.
    routes: [{ dst: "10.0.0.0/8" }],
    dns: { nameservers: [], search: [], options: [] },
  });
});

test("a result that cannot be read is refused with its field", (t) => {
  for (const [value, field, cni] of [
    [5, "prevResult", 6],
    [{ cniVersion: "9.0.0" }, "prevResult.cniVersion", 1],
    [{ ips: [{}] }, "prevResult.ips[0].address", 7],
    [{ ips: [{ address: "10.0.0.2" }] }, "prevResult.ips[0].address", 7],
    [{ ips: {} }, "prevResult.ips", 6],
    [{ routes: [{ gw: "10.0.0.1" }] }, "prevResult.routes[0].dst", 7],
    [{ interfaces: [7] }, "prevResult.interfaces[0]", 6],
    [{ dns: { nameservers: [7] } }, "prevResult.dns.nameservers[0]", 6],
    [{ ips: [{ address: "10.0.0.2/24", interface: "1" }] }, "prevResult.ips[0].interface", 6],
  ] as const) {
    const error = t.throws(() => parseResult(value, "1.0.0", "prevResult"), {
      instanceOf: PodnetError,
    });
    t.is(error.field, field);
    t.is(error.details["cni"], cni);
  }
});

test("a version that is none is reported, as far as a line goes", (t) => {
  const cniVersion = "9".repeat(2000);
  const { message } = t.throws(() => parseResult({ cniVersion }, "1.0.0"), {
    instanceOf: PodnetError,
  });
  const { hint } = t.throws(() => parseVersion(cniVersion), { instanceOf: PodnetError });
  for (const said of [message, hint ?? ""]) {
    t.regex(said, /"9+…"/);
    t.true(said.length < 200, said);
  }
});

const word = fc.stringMatching(/^[a-z][a-z0-9]{0,14}$/);
const address = fc.oneof(
  fc.ipV4().map((ip) => `${ip}/24`),
  fc.nat(0xffff).map((n) => `fd00::${n.toString(16)}/64`),
);
const results: fc.Arbitrary<CniResult> = fc
  .record({
    interfaces: fc.array(fc.record({ name: word }), { maxLength: 3 }),
    ips: fc.array(fc.record({ address }), { maxLength: 4 }),
    routes: fc.array(fc.record({ dst: fc.constantFrom("0.0.0.0/0", "::/0", "10.0.0.0/8") }), {
      maxLength: 4,
    }),
    dns: fc.record({
      nameservers: fc.array(word, { maxLength: 2 }),
      search: fc.array(word, { maxLength: 2 }),
      options: fc.array(word, { maxLength: 2 }),
    }),
  })
  .map((value) => parseResult(value, "1.1.0"));

test("nothing is lost from 0.3.0 on, there and back", (t) => {
  fc.assert(
    fc.property(results, fc.constantFrom(...cniVersions.slice(2)), (result, version) => {
      t.deepEqual(parseResult(JSON.parse(renderResult(result, version)), version), result);
    }),
  );
});

test("before 0.3.0 what is left is the same however often it is converted", (t) => {
  fc.assert(
    fc.property(results, fc.constantFrom(...cniVersions), (result, through) => {
      fc.pre(result.ips.length > 0);
      const first = parseResult(JSON.parse(renderResult(result, "0.2.0")), "0.2.0");
      const again = parseResult(JSON.parse(renderResult(first, through)), through);
      t.deepEqual(parseResult(resultValue(again, "0.1.0"), "0.1.0"), first);
      for (const family of [4, 6] as const) {
        const wanted = result.ips.find(({ address }) => familyOf(address) === family);
        const kept = first.ips.find(({ address }) => familyOf(address) === family);
        t.is(kept && ipOf(kept.address), wanted && ipOf(wanted.address));
      }
    }),
  );
});
