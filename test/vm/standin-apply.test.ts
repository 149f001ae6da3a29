import { writeFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { podnet } from "../unit/cli/fixtures/io.ts";
import type { Rig } from "./daemon-rig.ts";
import { joinStandInRig } from "./standin-rig.ts";

/** Applies documents to the rig's podnetd, and shows pods of it. */
function opened(rig: Rig, name: string) {
  const file = path.join(rig.directory, `${name}.yaml`);
  const apply = (text: string, ...flags: readonly string[]) => {
    writeFileSync(file, text);
    return podnet(["apply", "-f", file, ...flags], { socket: rig.daemon.socket });
  };
  const pod = async (idOrName: string) => (await rig.client.pods.get({ idOrName })).pod;
  return { apply, pod };
}

const site = `
kind: Pod
name: shop
labels: { app: shop, tier: "1" }
resources: { vcpu: 1, memory_mib: 128 }
interfaces:
  - { network: green, address: 10.77.0.9, mtu: 1400 }
  - { network: default, guest_name: lan1 }
ports: [{ host_port: 18080, pod_port: 80 }, { pod_port: 81 }]
policy: { default: allow }
---
kind: Policy
name: shops
applies_to: { labels: { app: shop } }
default: deny
---
kind: Network
name: green
subnets: [{ cidr: 10.77.0.0/24, reserved: [10.77.0.100] }]
mtu: 1450
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: calm }
spec: { podSelector: { matchLabels: { app: calm } }, policyTypes: [Ingress] }
`;

const remove = async (rig: Rig): Promise<void> => {
  await rig.daemon.podnet("delete", "--force", "shop");
  await rig.daemon.podnet("policy", "delete", "shops", "default/calm");
  await rig.daemon.podnet("network", "delete", "green");
};

test.serial(
  "a file makes what is missing, changes nothing the second time, and changes a running pod",
  async (t) => {
    await using rig = await joinStandInRig();
    const { apply, pod } = opened(rig, "site");
    const dry = await apply(site, "--dry-run");
    t.is(dry.code, 0, dry.err);
    t.regex(dry.out, /^network green: create\n {2}\+ subnets: .*10\.77\.0\.0\/24/m);
    t.regex(dry.out, /^4 to be created, 0 to be changed, 0 unchanged\n$/m);
    const order = [...dry.out.matchAll(/^(\w+) /gm)].map(([, kind]) => kind);
    t.deepEqual(order, ["network", "policy", "policy", "pod", "4"]);
    t.is(await pod("shop").catch(() => undefined), undefined);

    const made = await apply(site);
    t.is(made.code, 0, made.err);
    t.regex(made.out, /^4 created, 0 changed, 0 unchanged\n$/m);
    const first = await pod("shop");
    t.deepEqual(first?.interfaces[0]?.addresses, ["10.77.0.9/24"]);

    const again = await apply(site);
    t.is(again.code, 0, again.err);
    t.regex(again.out, /^0 created, 0 changed, 4 unchanged\n$/m, again.out);

    const other = site
      .replace('tier: "1"', 'tier: "2", new: x')
      .replace("10.77.0.9, mtu: 1400", "10.77.0.10, mtu: 1300")
      .replace("{ network: default, guest_name: lan1 }", "{ network: green, guest_name: lan2 }")
      .replace("host_port: 18080", "host_port: 18081")
      .replace("default: allow", "default: deny")
      .replace("mtu: 1450", "mtu: 1440\nisolated: true")
      .replace("app: calm", "app: quiet");
    const planned = await apply(other, "--dry-run", "-o", "json");
    const { items } = JSON.parse(planned.out) as {
      items: { name: string; action: string; changes: { field: string }[] }[];
    };
    t.deepEqual(
      items.map(({ name, action, changes }) => [name, action, changes.map(({ field }) => field)]),
      [
        ["green", "change", ["mtu", "isolated"]],
        ["shops", "unchanged", []],
        ["default/calm", "change", ["spec"]],
        [
          "shop",
          "change",
          [
            "labels.tier",
            "labels.new",
            "policy.default",
            "interfaces.lan1",
            "interfaces.eth0.address",
            "interfaces.eth0.mtu",
            "interfaces.lan2",
            "ports",
            "ports",
            "ports",
          ],
        ],
      ],
    );
    const changed = await apply(other);
    t.is(changed.code, 0, changed.err);
    t.regex(changed.out, /~ interfaces\.eth0\.mtu: 1400 → 1300/);
    t.regex((await apply(other)).out, /^0 created, 0 changed, 4 unchanged\n$/m);
    const shop = await pod("shop");
    t.is(shop?.id, first?.id);
    t.deepEqual(shop?.labels, { app: "shop", tier: "2", new: "x" });
    t.deepEqual(
      shop?.interfaces.map(({ guestName, network, mtu }) => [guestName, network, mtu]),
      [
        ["eth0", "green", 1300],
        ["lan2", "green", 1440],
      ],
    );
    t.deepEqual(shop?.interfaces[0]?.addresses, ["10.77.0.10/24"]);
    t.true(shop?.ports.some(({ hostPort, podPort }) => hostPort === 18_081 && podPort === 80));
    t.like(shop?.spec?.policy, { default: "deny" });
    t.is(shop?.ports.length, 2);

    const freed = other.replace("reserved: [10.77.0.100]", "reserved: []");
    const second =
      "kind: Pod\nname: second\ninterfaces: [{ network: green, address: 10.77.0.100 }]\n";
    const both = await apply(`${freed}---\n${second}`);
    t.is(both.code, 0, `A pod may need what the file changes of its network: ${both.err}`);
    t.regex(both.out, /^1 created, 1 changed, 3 unchanged\n$/m);
    await rig.daemon.podnet("delete", "--force", "second");
    await remove(rig);
  },
);

test.serial(
  "what cannot be changed is refused by name, with what to do, and nothing else is changed",
  async (t) => {
    await using rig = await joinStandInRig();
    const { apply, pod } = opened(rig, "fixed");
    t.is((await apply(site)).code, 0);
    const before = await pod("shop");
    for (const [from, to, line] of [
      [
        "memory_mib: 128",
        "memory_mib: 256",
        /! resources\.memory_mib: 128 → 256 \(.*has room for 128.*podnet stop shop/,
      ],
      [
        "{ network: default, guest",
        "{ network: green, guest",
        /! interfaces\.lan1\.network: default → green \(.*podnet interface remove \w+ lan1/,
      ],
      [
        "mtu: 1450",
        "bridge: other0",
        /! bridge: pn-green → other0 \(.*podnet network delete green/,
      ],
      ["name: shop\n", "name: shop\nhostname: other\n", /! hostname: .* → other/],
    ] as [string, string, RegExp][]) {
      const text = site.replace(from, to).replace('tier: "1"', 'tier: "9"');
      for (const flags of [[], ["--dry-run"]]) {
        const { code, out, err } = await apply(text, ...flags);
        t.not(code, 0);
        t.regex(out, line);
        t.regex(err, /1 change cannot be made \(UNSUPPORTED\)/);
      }
    }
    t.deepEqual((await pod("shop"))?.labels, before?.labels);

    await rig.daemon.podnet("stop", "--force", "shop");
    const stopped = await apply(site.replace("mtu: 1400", "mtu: 1399"));
    t.regex(stopped.out, /! interfaces\.eth0\.mtu: 1400 → 1399 \(the pod is stopped: podnet start/);
    t.is((await apply(site.replace('tier: "1"', 'tier: "3"'))).code, 0);

    const own = await apply("kind: Network\nname: default\nmtu: 1300\n");
    t.regex(own.out, /! mtu: 1500 → 1300 \(it is podnetd's own/);
    await remove(rig);
  },
);

test.serial("disks come and go as a file says, and none with data of its pod", async (t) => {
  await using rig = await joinStandInRig();
  const { apply, pod } = opened(rig, "disks");
  const files = ["one", "two"].map((name) => path.join(rig.directory, `${name}.raw`));
  for (const file of files) writeFileSync(file, Buffer.alloc(1 << 20));
  const [one = "", two = ""] = files;
  const document = (...disks: string[]): string =>
    `kind: Pod\nname: shop\ndisks: [${disks.join(", ")}]\n`;
  const set = `{ name: set, file: ${one}, read_only: true }`;
  const has = async (): Promise<string> =>
    ((await pod("shop"))?.disks ?? []).map(({ name }) => name).join(" ");
  t.is((await apply(document("{ size_mib: 1 }", set))).code, 0);
  t.is(await has(), "data set");
  t.regex(
    (await apply(document("{ size_mib: 1 }", set))).out,
    /^0 created, 0 changed, 1 unchanged$/m,
  );

  const next = document("{ size_mib: 1 }", `{ file: ${two} }`, "{ name: more, size_mib: 2 }");
  const changed = await apply(next);
  t.is(changed.code, 0, changed.err);
  t.regex(changed.out, /^ {2}- disks\.set: .*one\.raw\n/m);
  t.regex(changed.out, /^ {2}\+ disks\.data-2: .*two\.raw/m);
  t.is(await has(), "data data-2 more");
  t.regex((await apply(next)).out, /^0 created, 0 changed, 1 unchanged\n$/m);

  for (const [text, line] of [
    [document(`{ name: data-2, file: ${two} }`), /! disks\.data: 1 MiB \(its data would be lost/],
    [next.replace("size_mib: 2", "size_mib: 3"), /! disks\.more\.size_mib: 2 → 3 \(it is fixed/],
    [next.replace(two, one), /! disks\.data-2\.file: .*two\.raw → .*one\.raw/],
  ] as const) {
    const { code, out } = await apply(text);
    t.not(code, 0);
    t.regex(out, line);
  }
  t.is(await has(), "data data-2 more");
  t.is((await apply("kind: Pod\nname: shop\nlabels: { a: b }\n")).code, 0);
  t.is(await has(), "data data-2 more", "what a document does not name stays");

  await rig.daemon.podnet("stop", "--force", "shop");
  t.regex((await apply(document(set))).out, /! disks\.set: .*\(the pod is stopped: podnet start/);
  await rig.daemon.podnet("delete", "--force", "shop");
});

test.serial("a running pod gets the processors and memory that it has room for", async (t) => {
  await using rig = await joinStandInRig();
  const { apply, pod } = opened(rig, "sizes");
  const document = (resources: string): string =>
    `kind: Pod\nname: shop\nresources: { ${resources} }\n`;
  t.is((await apply(document("max_vcpu: 2, max_memory_mib: 512"))).code, 0);
  const larger = document("vcpu: 2, memory_mib: 256");
  const changed = await apply(larger);
  t.is(changed.code, 0, changed.err);
  t.regex(changed.out, /^ {2}~ resources\.memory_mib: 128 → 256$/m);
  t.like((await pod("shop"))?.vm, { vcpu: 2, memoryMib: 256 });
  t.regex((await apply(larger)).out, /^0 created, 0 changed, 1 unchanged\n$/m);
  for (const [resources, line] of [
    ["memory_mib: 300", /! resources\.memory_mib: 256 → 300 \(.*steps of 128 MiB: ask for 384/],
    ["vcpu: 1", /! resources\.vcpu: 2 → 1 \(.*takes more, and never less: Stop it/],
  ] as const) {
    const { code, out } = await apply(document(resources));
    t.not(code, 0);
    t.regex(out, line);
  }
  await rig.daemon.podnet("stop", "--force", "shop");
  t.is((await apply(document("vcpu: 1, memory_mib: 200"))).code, 0);
  t.like((await pod("shop"))?.spec?.resources, { vcpu: 1, memoryMib: 200, maxVcpu: 2 });
  await rig.daemon.podnet("delete", "--force", "shop");
});

test.serial("all documents are looked at before the first one changes anything", async (t) => {
  await using rig = await joinStandInRig();
  const { apply } = opened(rig, "bad");
  const network = "kind: Network\nname: blue\nsubnets: [{ cidr: 10.78.0.0/24 }]\n---\n";
  for (const [text, wanted] of [
    ["kind: Pod\nname: a\nresources: { vcpu: 99 }\n", /step: pod a/],
    ["kind: Pod\nname: a\ninterfaces: [{ network: blue, mac: x }]\n", /interfaces\[0\]\.mac/],
    ["kind: Pod\nname: a\ninterfaces: [{ network: nosuch }]\n", /NETWORK_NOT_FOUND/],
    ["kind: Pod\nname: a\nresources: { memory: 1 }\n", /UNKNOWN_FIELD[^]*document 2/],
    ["kind: Pod\n", /needs a name/],
    ["kind: Pot\nname: a\n", /Did you mean Pod\?/],
    ["name: a\n", /has no kind/],
    ["- 1\n", /is no object/],
    ["kind: Policy\nname: p\nrules: 7\n", /step: policy p/],
    ["kind: Network\nname: blue\n", /"network blue" is there twice/],
    ["kind: Pod\napiVersion: v1\nname: a\n", /another apiVersion/],
    ["kind: Pod\nname: a\n__proto__: { x: 1 }\n", /UNKNOWN_FIELD/],
    [
      "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n",
      /./,
    ],
    ["{", /neither YAML nor JSON/],
  ] as [string, RegExp][]) {
    const { code, err } = await apply(network + text);
    t.not(code, 0, text);
    t.regex(err, wanted, text);
    t.notRegex(err, /INTERNAL|\n\s+at /, text);
  }
  t.regex((await apply("")).err, /has no document/);
  const { networks } = await rig.client.networks.list({});
  t.false(networks.some(({ name }) => name === "blue"));
});
