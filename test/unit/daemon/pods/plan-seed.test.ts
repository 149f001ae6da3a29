import test from "ava";
import type { PodSpec } from "../../../../api/pod-spec.ts";
import type { InterfacePlan, PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import { seedOf } from "../../../../daemon/pods/plan/plan-seed.ts";

const named = (guestName: string, more: object): InterfacePlan =>
  ({ guestName, mtu: 1400, nic: { mac: `52:54:00:00:00:0${guestName.at(-1)}` }, ...more }) as never;
const interfaces = [
  named("eth0", {
    addresses: ["10.0.0.2/24", "fd00::2/64"],
    network: "both",
    gateways: [{ gateway: "10.0.0.1", metric: 5 }],
  }),
  named("lan1", { addresses: [], gateways: [] }),
];

function filesOf(agent: PodPlan["agent"]): Readonly<Record<string, string>> {
  const plan = {
    podId: "abcdefghijkl",
    name: "web",
    agent,
    interfaces,
    routes: [{ destination: "10.9.0.0/16", interface: "eth0" }],
    dns: { servers: ["10.0.0.1"], search: ["podnet"], options: [] },
  } as unknown as PodPlan;
  const spec = { boot: { cloudInit: { userData: "#!/bin/sh\n" } } } as PodSpec;
  return seedOf({ plan, spec })?.files ?? {};
}

interface NetworkConfig {
  readonly ethernets: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
}
const network = (): NetworkConfig =>
  JSON.parse(filesOf("none")["network-config"] ?? "") as NetworkConfig;

test("a seed disk names to cloud-init who the pod is and what its interfaces have", (t) => {
  const { "meta-data": meta = "", "user-data": user } = filesOf("none");
  t.deepEqual(JSON.parse(meta), { "instance-id": "abcdefghijkl", "local-hostname": "web" });
  t.is(user, "#!/bin/sh\n");
  const [own, asking] = Object.values(network().ethernets);
  t.deepEqual(own, {
    match: { macaddress: "52:54:00:00:00:00" },
    "set-name": "eth0",
    mtu: 1400,
    dhcp4: false,
    dhcp6: false,
    "accept-ra": false,
    addresses: ["10.0.0.2/24", "fd00::2/64"],
    routes: [
      { to: "0.0.0.0/0", via: "10.0.0.1", metric: 5 },
      { to: "10.9.0.0/16", scope: "link" },
    ],
    nameservers: { addresses: ["10.0.0.1"], search: ["podnet"] },
  });
  // Where another server answers, the guest asks.
  t.deepEqual(asking, {
    match: { macaddress: "52:54:00:00:00:01" },
    "set-name": "lan1",
    mtu: 1400,
    dhcp4: true,
    dhcp6: true,
    "accept-ra": true,
  });
});

test("what a seed disk says of an interface comes before an image's own word for every eth* and en*", (t) => {
  // netplan's files for networkd, which takes the first that fits.
  const file = (name: string): string => `10-netplan-${name}.network`;
  for (const name of Object.keys(network().ethernets))
    for (const general of ["all-en", "all-eth"]) t.true(file(name) < file(general), name);
});

test("what cloud-init sets up of the network it sets up at each boot, unless an agent does", (t) => {
  const [header = "", config = ""] = (filesOf("none")["vendor-data"] ?? "").split("\n");
  t.is(header, "#cloud-config");
  t.deepEqual(JSON.parse(config), {
    updates: { network: { when: ["boot-new-instance", "boot"] } },
  });
  const agents = filesOf(undefined);
  t.false("vendor-data" in agents);
  t.is(agents["network-config"], '{"config":"disabled"}\n');
});
