import type { Fault } from "../fault.ts";

const translated = "test/kernel/firewall-translated.test.ts";
const guard = "test/kernel/firewall-guard.test.ts";

const changes = "test/kernel/port-guard-changes.test.ts";
const ports = "test/kernel/port-guard.test.ts";
const everyKind =
  "a guest sends nothing in the name of another: each kind of frame is dropped, and counted at its port";
const beforeThePort =
  "the guard is there before a port joins its bridge, goes after it has left, and a tap of the same name inherits nothing";

/**
 * What a network's guests may send, and to whom: names, forged sources, advertisements, the cloud's
 * metadata.
 */
export const policyFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "an interface may be called as the folders for all interfaces are",
    file: "core/names.ts",
    find: "if (sysctlFolders.has(text)) {",
    put: "if (sysctlFolders.has(`${text}/`)) {",
    noticedBy: {
      file: "test/unit/cni/protocol/request.test.ts",
      title: "what cannot be served is refused with CNI's number and the variable or key at fault",
    },
  },
  {
    kind: "access",
    name: "forged senders reach the host and what is behind it",
    file: "network/firewall/nftables/port-guard.ts",
    find: '        drop("ipv4"),\n',
    put: "",
    noticedBy: {
      file: guard,
      title:
        "nftables, bridge-nf 0: what calls itself by no address of its network neither leaves the host nor reaches it",
    },
  },
  {
    kind: "access",
    name: "what podnet gave a pod on lo is let through at every port",
    file: "network/firewall/nftables/port-guard.ts",
    find: '"iifname . ip saddr @addresses4 goto checked4",',
    put: '"iifname . ip saddr @addresses4 goto checked4", "ip saddr 10.7.0.0/24 goto checked4",',
    noticedBy: {
      file: guard,
      title:
        "nftables: an address that podnet gave a pod on lo is let through at its ports, and at no other's",
    },
  },
  {
    kind: "access",
    name: "answers from addresses of lo are dropped",
    file: "daemon/pods/interfaces/pod-ports.ts",
    find: ".filter(({ nic }) => nic === undefined)",
    put: ".filter(({ nic, cni }) => nic === undefined && cni !== undefined)",
    noticedBy: {
      file: "test/unit/daemon/pods/live-updates.test.ts",
      title: "lo gets addresses and loses them without a NIC",
    },
  },
  {
    kind: "access",
    name: "a guest advertises itself as its neighbours' router",
    file: "network/firewall/nftables/port-guard.ts",
    find: "`${six} icmpv6 type vmap",
    put: "`icmpv6 type vmap",
    noticedBy: {
      file: guard,
      title:
        "nftables: no guest advertises routers, redirects, or answers as a DHCP server; others on the bridge do",
    },
  },
  {
    kind: "mark",
    name: "the guard judges ports of others",
    file: "network/firewall/nftables/port-guard.ts",
    find: "rules: [`meta iifgroup ${allPortGroups} jump port`],",
    put: 'rules: ["jump port"],',
    noticedBy: {
      file: guard,
      title:
        "nftables: no guest advertises routers, redirects, or answers as a DHCP server; others on the bridge do",
    },
  },
  {
    kind: "access",
    name: "guests speak IPv6 with each other on a network without",
    file: "network/firewall/nftables/port-elements.ts",
    find: '[{ set: "without6" as const, key: group }]',
    put: "[]",
    noticedBy: {
      file: guard,
      title:
        "nftables: on a network without IPv6 guests exchange none, and one that gets IPv6 lets it through",
    },
  },
  {
    kind: "access",
    name: "the short cut of the guard asks for the address alone",
    file: "network/firewall/nftables/port-guard.ts",
    find: "`meta protocol ip iifname . ip saddr . ${source.mac} @senders4 goto checked4`",
    put: '"iifname . ip saddr @addresses4 goto checked4 "',
    noticedBy: { file: ports, title: everyKind },
  },
  {
    kind: "access",
    name: "a rule accepts what guests send before their senders are looked at",
    file: "network/firewall/nftables/port-guard.ts",
    find: "        notePort,\n",
    put: '        notePort, "meta protocol ip accept",\n',
    noticedBy: { file: ports, title: everyKind },
  },
  {
    kind: "access",
    name: "ARP is not looked at",
    file: "network/firewall/nftables/port-guard.ts",
    find: "arp : goto resolution",
    put: "arp : accept",
    noticedBy: { file: ports, title: everyKind },
  },
  {
    kind: "access",
    name: "the link-layer address inside of neighbor discovery is not looked at",
    file: "network/firewall/nftables/port-guard.ts",
    find: "`ip6 length ${length} ${head} ${type} iifname . ${mac} @macs accept`",
    put: "`ip6 length ${length} ${head} ${type} accept`",
    noticedBy: { file: ports, title: everyKind },
  },
  {
    kind: "access",
    name: "a guest chooses the link-local address of its gateway",
    file: "network/firewall/nftables/port-elements.ts",
    find: '[{ set: "links" as const, key: `${group} . ${hex(linkLocalOf(mac))}` }]',
    put: "[]",
    noticedBy: {
      file: "test/kernel/port-guard-addresses.test.ts",
      title: "a guest that chooses its link-local addresses uses any but those of others",
    },
  },
  {
    kind: "access",
    name: "a tap inherits what an earlier one of its name might send",
    file: "network/firewall/nftables/driver.ts",
    find: "      ...elements.at(tap),\n",
    put: "",
    noticedBy: { file: changes, title: beforeThePort },
  },
  {
    kind: "record",
    name: "a port joins its bridge before the guard knows it",
    file: "network/bridge/compare.ts",
    find: `    ...(await comparePoliced(view.firewall, [fragment], signal)),
    ...(await comparePorts(view, fragment)),
`,
    put: `    ...(await comparePorts(view, fragment)),
    ...(await comparePoliced(view.firewall, [fragment], signal)),
`,
    noticedBy: { file: changes, title: beforeThePort },
  },
  {
    kind: "repair",
    name: "a table of the guard comes back without ports",
    file: "network/firewall/nftables/port-guard.ts",
    find: "  restored: true,\n",
    put: "",
    noticedBy: {
      file: changes,
      title:
        "a table that another program deleted comes back with all ports, which are never without it for long",
    },
  },
  {
    kind: "access",
    name: "the cloud's metadata are open to every network",
    file: "network/firewall/nftables/element.ts",
    find: "...(cloudMetadata === true ? []",
    put: "...(cloudMetadata !== false ? []",
    noticedBy: {
      file: guard,
      title:
        "nftables: the cloud's metadata are out of reach, unless the network is open to it; what the host has is not",
    },
  },
  {
    kind: "bound",
    name: "a bridge learns addresses without end",
    file: "network/bridge/apply.ts",
    find: "const bridge = { fdbMaxLearned, noLinkLocalLearn: true };",
    put: "const bridge = { fdbMaxLearned: fdbMaxLearned * 8, noLinkLocalLearn: true };",
    noticedBy: {
      file: guard,
      title:
        "a guest that calls itself by MACs without number has its bridge learn so many, and no more",
    },
  },
  {
    kind: "bound",
    name: "a bridge learns from frames that it does not forward",
    file: "network/bridge/apply.ts",
    find: "const { index } = await netlink.addBridge({ ...born, bridge });",
    put: "const { index } = await netlink.addBridge({ ...born, bridge: { ...bridge, noLinkLocalLearn: false } });",
    noticedBy: {
      file: guard,
      title: "a bridge learns no MAC from a frame that it does not forward, such as LLDP's",
    },
  },
  {
    kind: "repair",
    name: "a host without the guard's parts makes no network",
    file: "network/firewall/nftables/rule-table.ts",
    find: "if (!this.#doesWithout(error, edit.base)) throw error;",
    put: "if (edit.base !== undefined) throw error;",
    noticedBy: {
      file: "test/unit/network/firewall/guard.test.ts",
      title:
        "a host that lacks what the guard takes does without it, and says so; any other failure is one",
    },
  },
  {
    kind: "access",
    name: "containers listen to whoever advertises a router",
    file: "network/containers/links.ts",
    find: "applySettings(settings, inside.sysctl);",
    put: "applySettings([], inside.sysctl);",
    noticedBy: {
      file: "test/kernel/attachment-drift.test.ts",
      title:
        "a container hears no router, and speaks no IPv6 where it was given none; another one alongside it does",
    },
  },
  {
    kind: "mark",
    name: "the IPv6 that a later plugin gives a container is taken away",
    file: "network/containers/settings.ts",
    find: "if (held.some((address) => isOthers(address, addresses))) return [];",
    put: "void [held, isOthers];",
    noticedBy: {
      file: "test/kernel/attachment-drift.test.ts",
      title: "what a later plugin makes of a container's IPv6 is left to it",
    },
  },
  {
    kind: "access",
    name: "what others translate reaches every pod, by iptables",
    file: "network/firewall/iptables/network-rules.ts",
    find: "...(network.acceptTranslated === true\n",
    put: "...(network.acceptTranslated !== false\n",
    noticedBy: {
      file: translated,
      title:
        "iptables-nft: what others translate reaches containers, and pods where their network accepts it",
    },
  },
  {
    kind: "release",
    name: "rules of a container stay while a rule of others is in podnet's chain",
    file: "network/firewall/nftables/driver.ts",
    find: "const [remove, gone] = [[...owned], ",
    put: "const [remove, gone] = [[], ",
    noticedBy: {
      file: translated,
      title:
        "nftables: rules of a container that go while an administrator's rule is in podnet's chain stay away",
    },
  },
  {
    kind: "access",
    name: "what others translate reaches every pod, by nftables",
    file: "network/firewall/nftables/element.ts",
    find: "...(network.acceptTranslated === true\n",
    put: "...(network.acceptTranslated !== false\n",
    noticedBy: {
      file: translated,
      title:
        "nftables: what others translate reaches containers, and pods where their network accepts it",
    },
  },
  {
    kind: "access",
    name: "pods of an isolated network are admitted to each other, by nftables",
    file: "network/firewall/nftables/base.ts",
    find: '      "iifname . oifname @apart drop",\n',
    put: "",
    noticedBy: {
      file: translated,
      title: "nftables: sources that a network admits reach its pods, and no others",
    },
  },
  {
    kind: "access",
    name: "pods of an isolated network are admitted to each other, by iptables",
    file: "network/firewall/iptables/network-rules.ts",
    find: 'filter(chain, ...from(cidr), "!", "-i", bridge, "-o", bridge,',
    put: 'filter(chain, ...from(cidr), "-o", bridge,',
    noticedBy: {
      file: translated,
      title: "iptables-nft: sources that a network admits reach its pods, and no others",
    },
  },
  {
    kind: "repair",
    name: "rules of containers that could not be written are left to drift repair, which does not see them",
    file: "daemon/containers/translation-rules.ts",
    find: "ready.ruled([...ids.values()]);",
    put: "ready.ruled(ready.unruled().map(({ id }) => id));",
    noticedBy: {
      file: "test/unit/daemon/containers/translation-rules.test.ts",
      title: "rules that could not be written are tried again until they are, of all containers",
    },
  },
  {
    kind: "release",
    name: "the rules of a container that is gone stay",
    file: "daemon/containers/teardown-queue.ts",
    find: "    await removeTranslationRules(fragments, host);\n",
    put: "",
    noticedBy: {
      file: "test/cni/runtimes.test.ts",
      title: "containerd, with Debian's portmap for hostPort: reached from outside, by nftables",
    },
  },
];
