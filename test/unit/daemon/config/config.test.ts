import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { PodnetError } from "../../../../core/errors.ts";
import { parseIpRange } from "../../../../core/ip-range.ts";
import { parseSubnet } from "../../../../daemon/config/cidr.ts";
import { renderSettings, resolveConfig } from "../../../../daemon/config/config.ts";
import { configKeys } from "../../../../daemon/config/schema.ts";

const file = (text: string): string => {
  const path = join(mkdtempSync(join(tmpdir(), "podnet-config-")), "config.toml");
  writeFileSync(path, text);
  return path;
};

const resolve = (
  toml: string,
  env: Record<string, string> = {},
  flags: Record<string, string> = {},
) =>
  resolveConfig({ env, flags: new Map(Object.entries(flags)), file: file(toml), checkout: "/x" });

const refusal = (t: ExecutionContext, body: () => unknown): PodnetError =>
  t.throws(body, { code: "CONFIG_INVALID" }) as PodnetError;

test("without anything written the ancestors' defaults hold", (t) => {
  const { config } = resolve("");
  t.is(config.network.bridge, "hyper0" as never);
  t.is(config.network.subnets[0]?.gateway, "192.168.123.1/24" as never);
  t.is(config.network.subnets[0]?.cidr, "192.168.123.0/24" as never);
  t.is(config.iptablesChain, "HYPER");
  t.is(config.socket, "/run/podnet/podnet.sock");
  t.is(config.image.kernel, "/usr/share/podnet/vmlinux");
  t.is(config.factory, "cold");
});

test("the default image is of the machines' architecture, which is the host's unless given", (t) => {
  t.is(resolve("").config.qemu.arch, "x86_64");
  const toml = '[qemu]\narch = "arm64"\n[image]\nkernel = "/own/Image"';
  const { config, settings } = resolve(toml);
  t.is(config.qemu.arch, "arm64");
  t.deepEqual(config.image, {
    kernel: "/own/Image",
    initrd: "/usr/share/podnet/arm64/initramfs.gz",
  });
  const origins = new Map(settings.map(([key, { origin }]) => [key.key, origin]));
  t.regex(origins.get("image.kernel") ?? "", /config\.toml$/);
  t.is(origins.get("image.initrd"), "default");
  const error = refusal(t, () => resolve("", {}, { "qemu.arch": "aarch64" }));
  t.regex(error.message, /x86_64.*arm64/);
});

test("a flag wins over the environment, that over the file, that over the default", (t) => {
  const toml = '[network]\ncidr = "10.1.0.0/16"\nmtu = 1400\nbridge = "br1"\n';
  const { config, settings } = resolve(
    toml,
    { PODNET_NETWORK_MTU: "1300", PODNET_NETWORK_BRIDGE: "br2" },
    { "network.bridge": "br3" },
  );
  t.is(config.network.subnets[0]?.cidr, "10.1.0.0/16" as never);
  t.is(config.network.mtu, 1300);
  t.is(config.network.bridge, "br3" as never);
  const origins = new Map(settings.map(([key, { origin }]) => [key.key, origin]));
  t.regex(origins.get("network.cidr") ?? "", /config\.toml$/);
  t.is(origins.get("network.mtu"), "PODNET_NETWORK_MTU");
  t.is(origins.get("network.bridge"), "--network-bridge");
  t.is(origins.get("log_level"), "default");
});

test("whoever is no admin may name images of the usual directories, and never of the root", (t) => {
  t.deepEqual(resolve("").config.imagePaths, ["/usr/share/podnet", "/var/lib/podnet/images"]);
  const { imagePaths } = resolve(
    'state_dir = "/s"\n[image]\nkernel = "/vmlinuz"\ninitrd = "/srv/a/initrd"',
  ).config;
  t.deepEqual(imagePaths, ["/srv/a", "/s/images", "/usr/share/podnet"]);
  t.deepEqual(resolve('[access]\nimage_paths = ["/x"]').config.imagePaths, ["/x"]);
  const error = refusal(t, () => resolve('[access]\nimage_paths = ["x"]'));
  t.regex(error.field ?? "", /^access\.image_paths/);
});

test("systemd's directories are honoured, and every path follows them", (t) => {
  const { config } = resolve("", {
    RUNTIME_DIRECTORY: "/run/a:/run/b",
    STATE_DIRECTORY: "/var/lib/a",
  });
  t.is(config.runDir, "/run/a");
  t.is(config.stateDir, "/var/lib/a");
  t.is(config.socket, "/run/a/podnet.sock");
  t.is(config.podsDir, "/run/a/pods");
  t.is(config.disksDir, "/var/lib/a/disks");
  t.is(resolve('disks_dir = "/srv/disks"').config.disksDir, "/srv/disks");
});

test("a misspelt key is answered with the one that was probably meant", (t) => {
  for (const [text, meant] of [
    ["[netwrk]\nmtu = 1400", /Did you mean network\?/],
    ["[network]\ncird = 1", /Did you mean network\.cidr\?/],
    ["sate_dir = '/srv'", /Did you mean state_dir\?/],
    ["elephants = 3", /podnetd --help/],
  ] as const) {
    const error = t.throws(() => resolve(text)) as PodnetError;
    t.regex(error.hint ?? "", meant, text);
  }
});

test("podnet's own directory is chosen, wherever systemd's sorting puts it", (t) => {
  const { config } = resolve("", { RUNTIME_DIRECTORY: "/run/flannel:/run/podnet" });
  t.is(config.socket, "/run/podnet/podnet.sock");
});

const bad: readonly (readonly [string, string, RegExp, string])[] = [
  ["an unknown key", "netwrk = 1", /"netwrk".*not known/, "netwrk"],
  ["an unknown nested key", "[network]\ncird = 1", /"network\.cird".*not known/, "network.cird"],
  ["a wrong type", "[network]\nmtu = '1500'", /"network\.mtu".*expected/i, "network.mtu"],
  [
    "an MTU out of range",
    "[network]\nmtu = 100",
    /"network\.mtu".*too small: it is \d+ at least/,
    "network.mtu",
  ],
  [
    "a prefix with a leading zero",
    "[network]\ncidr = '10.0.0.0/08'",
    /"network\.cidr"/,
    "network.cidr",
  ],
  ["a size class that is none", "[pool]\nclasses = ['2x512']", /VCPUSxMIB=COUNT/, "pool.classes"],
  ["too many machines", "[pool]\nclasses = ['2x512=1001']", /VCPUSxMIB=COUNT/, "pool.classes"],
  [
    "a class of no image's name",
    "[pool]\nclasses = ['App 1x128=1']",
    /not an image's name/,
    "pool.classes",
  ],
  [
    "an image twice",
    "[pool]\nclasses = ['app 1x128=1', 'app:latest 1x128=1']",
    /there twice/,
    "pool.classes",
  ],
  ["a size class twice", "[pool]\nclasses = ['2x512=1', '2x512=2']", /there twice/, "pool.classes"],
  ["the default size", "[pool]\nclasses = ['1x128=1']", /default size/, "pool.classes"],
  ["a class without memory", "[pool]\nclasses = ['1x8=1']", /No guest boots/, "pool.classes"],
  ["a pool too small", "[network]\ncidr = '10.0.0.0/31'", /cannot be a \/31/, "network.cidr"],
  ["a pool too large", "[network]\ncidr = '10.0.0.0/7'", /cannot be a \/7/, "network.cidr"],
  ["loopback", "[network]\ncidr = '127.0.0.0/24'", /no pod can live/, "network.cidr"],
  ["mapped", "[network]\ncidr = '::ffff:10.1.0.0/112'", /no pod can live/, "network.cidr"],
  ["multicast", "[network]\ncidr = '224.0.0.0/24'", /no pod can live/, "network.cidr"],
  [
    "the broadcast address as gateway",
    "[network]\ncidr = '10.0.0.255/24'",
    /broadcast/,
    "network.cidr",
  ],
  ["a zone", "[network]\ncidr = 'fe80::1%eth0/64'", /"network\.cidr"/, "network.cidr"],
  ["a reservation outside", "[network]\nreserved = ['10.0.0.1']", /not inside/, "network.reserved"],
  [
    "a reservation of the other family",
    "[network]\nreserved = ['::1']",
    /not inside/,
    "network.reserved",
  ],
  [
    "a reservation backwards",
    "[network]\nreserved = ['192.168.123.9-192.168.123.3']",
    /ends before/,
    "network.reserved",
  ],
  ["a bad bridge name", "[network]\nbridge = 'a b'", /"network\.bridge"/, "network.bridge"],
  ["a relative path", "state_dir = 'here'", /absolute/, "state_dir"],
  ...["A".repeat(29), "", "a.b", "FORWARD", "DROP", "-A", "PODNET-OVERLAY-0"].map(
    (chain) =>
      [
        `a chain named "${chain}"`,
        `iptables_chain = '${chain}'`,
        /chain's name/,
        "iptables_chain",
      ] as const,
  ),
  ["a wrong choice", "iptables_variant = 'xtables'", /"iptables_variant"/, "iptables_variant"],
  [
    "TCP without certificates",
    "[tcp]\naddress = '127.0.0.1:7'",
    /needs "tcp\.cert"/,
    "tcp.address",
  ],
  ["a table where a value belongs", "network = 3", /"network"/, "network"],
];

for (const [what, toml, message, key] of bad) {
  test(`refused with its key and origin: ${what}`, (t) => {
    const error = refusal(t, () => resolve(toml));
    t.regex(error.message, message);
    t.regex(error.message, /config\.toml/);
    t.is(error.field, key);
    t.truthy(error.hint);
  });
}

test("a wrong variable or flag is named as it was written", (t) => {
  t.regex(
    refusal(t, () => resolve("", { PODNET_NETWORK_MTU: "big" })).message,
    /PODNET_NETWORK_MTU/,
  );
  t.regex(refusal(t, () => resolve("", {}, { "qemu.kvm": "maybe" })).message, /--qemu-kvm/);
  t.regex(refusal(t, () => resolve('factory = "warm"')).message, /factory/);
  t.regex(
    refusal(t, () => resolve("", {}, { disable_iptables: "yes" })).message,
    /--disable-iptables/,
  );
});

test("what is no TOML is refused with the line", (t) => {
  t.regex(refusal(t, () => resolve("a = 1\nb = = 2")).message, /config\.toml:2:/);
});

test("a file asked for by name must be there", (t) => {
  const sources = { env: {}, flags: new Map(), file: "/nowhere/podnet.toml", checkout: "/x" };
  t.regex(refusal(t, () => resolveConfig(sources)).message, /not readable/);
});

test("host bits in a network mean exactly that gateway", (t) => {
  t.is(parseSubnet("192.168.123.0/24").gateway, "192.168.123.1/24" as never);
  t.is(parseSubnet("192.168.123.77/24").gateway, "192.168.123.77/24" as never);
  t.is(parseSubnet("fd00:1::/64").gateway, "fd00:1::1/64" as never);
  t.is(parseSubnet("fd00:1::5/64").cidr, "fd00:1::/64" as never);
});

test("a reservation is an address, a network or a range", (t) => {
  t.deepEqual(parseIpRange("192.168.123.9"), {
    first: "192.168.123.9",
    last: "192.168.123.9",
  } as never);
  t.deepEqual(parseIpRange("192.168.123.16/28"), {
    first: "192.168.123.16",
    last: "192.168.123.31",
  } as never);
  t.deepEqual(parseIpRange("192.168.123.3-192.168.123.5"), {
    first: "192.168.123.3",
    last: "192.168.123.5",
  } as never);
});

test("the resolved view shows each value with its origin", (t) => {
  const text = renderSettings(resolve("quarantine_s = 5"));
  t.regex(text, /^quarantine_s +?= 5 +# .*config\.toml$/m);
  t.regex(text, /^network\.bridge +?= "hyper0" +# default$/m);
});

test("every key has help, a variable and a flag, and none collides", (t) => {
  t.true(configKeys.every(({ help }) => help.length > 10));
  for (const each of ["env", "flag"] as const) {
    t.is(new Set(configKeys.map((key) => key[each])).size, configKeys.length);
  }
});

test("the socket's group are operators until another is configured", (t) => {
  t.deepEqual(resolve("").config.access, { admin: [], operator: [], viewer: [] });
  const root = { kind: "gid", id: 0 } as const;
  t.deepEqual(resolve('socket_group = "root"').config.access.operator, [root]);
  const toml = 'socket_group = "root"\n[access]\noperator = ["cert:ops"]\nviewer = ["uid:5"]';
  t.deepEqual(resolve(toml).config.access, {
    admin: [],
    operator: [{ kind: "cert", name: "ops" }],
    viewer: [{ kind: "uid", id: 5 }],
  });
  const error = refusal(t, () => resolve('[access]\nadmin = ["gid:no-such-group"]'));
  t.is(error.field, "access.admin");
  t.regex(error.message, /there is no group "no-such-group"/);
  t.is(refusal(t, () => resolve("[limits]\nrequests_per_s = 0")).field, "limits.requests_per_s");
});

test("there is no overlay until an etcd is named, and then flannel's defaults hold", (t) => {
  t.is(resolve("[overlay]\nmasquerade = true\n").config.overlay, undefined);
  const { overlay } = resolve('[overlay]\netcd.endpoints = ["http://10.0.0.1:2379"]\n').config;
  const manager = overlay?.manager;
  t.is(overlay?.prefix, "/coreos.com/network" as never);
  t.is(overlay?.subnetFile, "/run/flannel/subnet.env");
  t.is(manager?.kind === "etcd" && manager.ttlSeconds, 86_400);
  t.is(manager?.kind === "etcd" && manager.marginSeconds, 3600);
  t.is(overlay?.masquerade, undefined);
  t.true(overlay?.forward);
});

test("Kubernetes as subnet manager has flannel's defaults, and needs no etcd", (t) => {
  const { overlay } = resolve('[overlay]\nsubnet_manager = "kubernetes"\n').config;
  t.deepEqual(overlay?.manager, {
    kind: "kubernetes",
    kubeconfig: undefined,
    node: undefined,
    netConf: "/etc/kube-flannel/net-conf.json",
    annotationPrefix: "flannel.alpha.coreos.com",
    writesCondition: true,
  });
  const toml = `[overlay]
subnet_manager = "kubernetes"
kubernetes.kubeconfig = "/etc/podnet/kubeconfig"
kubernetes.node_name = "worker-1.example.org"
kubernetes.annotation_prefix = "net.example.org/"
kubernetes.network_condition = false
`;
  const { manager } = resolve(toml).config.overlay ?? {};
  if (manager?.kind !== "kubernetes") {
    t.fail();
    return;
  }
  t.is(manager.kubeconfig, "/etc/podnet/kubeconfig");
  t.is(manager.node, "worker-1.example.org");
  t.is(manager.annotationPrefix, "net.example.org");
  t.false(manager.writesCondition);
});

test("keys of tables in tables come from file, environment and flag", (t) => {
  const toml = '[overlay.etcd]\nendpoints = ["http://10.0.0.1:2379"]\nprefix = "/file"\n';
  const of = (env: Record<string, string>, flags: Record<string, string>) =>
    resolve(toml, env, flags).config.overlay?.prefix as string | undefined;
  t.is(of({}, {}), "/file");
  t.is(of({ PODNET_OVERLAY_ETCD_PREFIX: "/env" }, {}), "/env");
  t.is(of({ PODNET_OVERLAY_ETCD_PREFIX: "/env" }, { "overlay.etcd.prefix": "/flag" }), "/flag");
});

for (const [what, toml, field] of [
  [
    "an endpoint that is none",
    '[overlay]\netcd.endpoints = ["10.0.0.1:2379"]',
    "overlay.etcd.endpoints",
  ],
  [
    "a prefix below which flannel would stumble",
    '[overlay.etcd]\nprefix = "/a/subnets"',
    "overlay.etcd.prefix",
  ],
  ["a certificate without a key", '[overlay.etcd]\ncert = "/a.pem"', "overlay.etcd.cert"],
  ["a key without a certificate", '[overlay.etcd]\nkey = "/a.pem"', "overlay.etcd.key"],
  ...(
    [
      ["etcd as well", 'etcd.endpoints = ["http://10.0.0.1:2379"]', "overlay.etcd.endpoints"],
      ["names of overlays", 'names = ["blue"]', "overlay.names"],
      ["overlays to discover", "discover = true", "overlay.discover"],
      ["a name that no Node has", 'kubernetes.node_name = "../x"', "overlay.kubernetes.node_name"],
      [
        "annotations without a prefix",
        'kubernetes.annotation_prefix = "/"',
        "overlay.kubernetes.annotation_prefix",
      ],
      ["a relative path", 'kubernetes.kubeconfig = "config"', "overlay.kubernetes.kubeconfig"],
    ] as const
  ).map(
    ([what, line, key]) =>
      [
        `${what} with Kubernetes`,
        `[overlay]\nsubnet_manager = "kubernetes"\n${line}`,
        key,
      ] as const,
  ),
  ["another subnet manager", '[overlay]\nsubnet_manager = "consul"', "overlay.subnet_manager"],
  ["a user without a password", '[overlay.etcd]\nusername = "root"', "overlay.etcd.username"],
  ["no margin", "[overlay]\nrenew_margin_m = 0", "overlay.renew_margin_m"],
  ["a margin of a day", "[overlay]\nrenew_margin_m = 1440", "overlay.renew_margin_m"],
  ["an address of the other family", '[overlay]\npublic_ip = "fd00::1"', "overlay.public_ip"],
  ["an expression that is none", '[overlay]\ninterface_regex = ["("]', "overlay.interface_regex"],
  ["a name that is no network's", '[overlay]\nnames = ["subnets"]', "overlay.names"],
  ["what is no network", '[overlay]\nno_masquerade = ["10.0.0.0"]', "overlay.no_masquerade"],
  ["a key that is not known", "[overlay.etcd]\nendpoint = []", "overlay.etcd.endpoint"],
] as const)
  test(`an overlay is refused ${what}`, (t) => {
    const error = refusal(t, () => resolve(`${toml}\n`));
    t.true(error.message.includes(`"${field}"`), error.message);
  });

test("the socket that the command podnet is notified of is not podnetd's own", (t) => {
  t.is(resolve("", { PODNET_SOCKET: "/tmp/client.sock" }).config.socket, "/run/podnet/podnet.sock");
  t.is(resolve("", { PODNETD_SOCKET: "/tmp/own.sock" }).config.socket, "/tmp/own.sock");
});
