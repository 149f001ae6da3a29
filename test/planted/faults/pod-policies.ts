import type { Fault } from "../fault.ts";

const kernel = "test/kernel/firewall-policy.test.ts";
const many = "test/kernel/policy-many.test.ts";
const ofOne =
  "a policy that changes for one pod costs as many calls with others as without, and ends its flows alone";
const rules = "the kernel decides about a pod's flows as the policy does, at once (nftables)";
const denials = "test/kernel/policy-denials.test.ts";
const log = "test/kernel/denial-log.test.ts";
const verdicts = "test/unit/daemon/policies/verdicts.test.ts";
const onBridge = "test/kernel/policy-on-bridge.test.ts";
const repaired = "what others take from a policy's chain is put back, and flows stay closed";

/** Policies of pods: their chains, who shares them, and what puts them back. */
export const podPoliciesFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "flows end where the policy of any pod does not allow them",
    file: "network/bridge/flows.ts",
    find: "byAddress.get(flow[side].source)?.some(",
    put: "decided.some(",
    noticedBy: { file: many, title: ofOne },
  },
  {
    kind: "bound",
    name: "the links of all pods are looked at for each changed policy",
    file: "network/bridge/open-host-network.ts",
    find: "ports.some(({ alias }) => changed?.has(alias) !== false),",
    put: "ports.some(({ alias }) => changed?.has(alias) !== null),",
    noticedBy: { file: many, title: ofOne },
  },
  {
    kind: "mark",
    name: "a policy looks at the wrong end of a flow",
    file: "network/firewall/nftables/policy-chain.ts",
    find: 'const side = direction === "egress" ? "daddr" : "saddr";',
    put: 'const side = direction === "egress" ? "saddr" : "daddr";',
    noticedBy: { file: kernel, title: rules },
  },
  {
    kind: "bound",
    name: "ports of a rule are not looked at",
    file: "network/firewall/nftables/policy-chain.ts",
    find: "return [{ protocol, compare: comparison(`${protocol} dport`, texts) }];",
    put: "return [{ protocol, compare: ofProtocol(protocol) }].slice(texts.length < 0 ? 1 : 0);",
    noticedBy: { file: kernel, title: rules },
  },
  {
    kind: "repair",
    name: "a chain that was emptied counts as whole",
    file: "network/firewall/nftables/diff.ts",
    find: "    rules.length > 0 &&\n    sameRules(rules, policyComments",
    put: "    sameRules(rules, policyComments",
    noticedBy: { file: kernel, title: repaired },
  },
  {
    kind: "undo",
    name: "a chain that another pod still has goes with a pod",
    file: "network/firewall/nftables/driver.ts",
    find: 'drop.delete(chainOf(element) ?? "");',
    put: "void element;",
    noticedBy: {
      file: kernel,
      title: "pods with one policy share its chain, and each keeps it when another one goes",
    },
  },
  {
    kind: "access",
    name: "an address that a pod gives up passes without a policy for a moment",
    file: "network/bridge/compare-policed.ts",
    find: "if (after.remove.length === 0) return",
    put: "if (after.remove.length >= 0) return",
    noticedBy: {
      file: "test/unit/network/bridge/compare-policed.test.ts",
      title:
        "a policy gains a port's new address before the guard does, and loses the old one after it",
    },
  },
  {
    kind: "repair",
    name: "a damaged table of policies stays when no pod has one",
    file: "network/firewall/nftables/driver.ts",
    find: "this.#options.table.exists && !isUsed",
    put: "false",
    noticedBy: {
      file: kernel,
      title: "a rule of others closes nothing once no pod has a policy any more",
    },
  },
  {
    kind: "access",
    name: "frames between pods pass no rules unless the host is set so",
    file: "network/bridge/bridge-filter.ts",
    find: "bridge?.nfCall === false && parseOwner",
    put: "bridge?.nfCall === true && parseOwner",
    noticedBy: {
      file: onBridge,
      title: "between pods on one bridge a policy decides, whatever the host's setting (nftables)",
    },
  },
  {
    kind: "access",
    name: "a pod passes its policy with tagged frames",
    file: "network/firewall/nftables/policed-ports.ts",
    find: 'rules: ["vlan id 0-4095 iifname @policed drop"],',
    put: "rules: [],",
    noticedBy: {
      file: onBridge,
      title: "what no policy can judge passes neither from its pod nor to it",
    },
  },
  {
    kind: "access",
    name: "a connection that was open before its bridge was filtered goes on",
    file: "network/firewall/nftables/policy-chain.ts",
    find: "    { rule: midway },\n",
    put: "    ...[{ rule: midway }].slice(1),\n",
    noticedBy: {
      file: onBridge,
      title: "a connection from before its bridge was filtered ends with a policy, whoever sends",
    },
    shows: "hang",
  },
  {
    kind: "access",
    name: "a trace lets pass what the network of the receiver denies",
    file: "daemon/trace/path.ts",
    find: "  return admitted === undefined\n    ?",
    put: "  return admitted !== undefined\n    ?",
    noticedBy: {
      file: "test/unit/daemon/trace/path.test.ts",
      title: "a network that admits the sender takes its packets; another one does not",
    },
  },
  {
    kind: "access",
    name: "a policy of networks is that of pods on any network",
    file: "policy/selector.ts",
    find: "(pod.networks ?? []).some((name) => target.networks?.includes(name)));",
    put: "(pod.networks ?? []).some((name) => name !== target.networks?.[0]));",
    noticedBy: {
      file: "test/unit/policy/decide.test.ts",
      title: "a policy chooses by name and by network, and all its conditions hold",
    },
  },
  {
    kind: "access",
    name: "the annotation of a pod gives its container no labels",
    file: "daemon/containers/cni/attachment-request.ts",
    find: "return validateLabels(Object.fromEntries([...annotated, ...given]));",
    put: "return validateLabels(Object.fromEntries([...given]));",
    noticedBy: {
      file: "test/unit/daemon/containers/plan.test.ts",
      title: "the plan of a container: labels of the configuration, and of the pod's annotation",
    },
  },
  {
    kind: "access",
    name: "what a policy denies is counted, and passes",
    file: "network/firewall/nftables/denials.ts",
    find: '    "reject with icmpx admin-prohibited",\n',
    put: "",
    noticedBy: { file: kernel, title: rules },
  },
  {
    kind: "mark",
    name: "denials are those of whoever has the address",
    file: "network/firewall/nftables/denials.ts",
    find: "const digest = digestOf(owner);",
    put: "const digest = digestOf(owner.slice(0, 10));",
    noticedBy: {
      file: denials,
      title: "a pod that gets an address of another one inherits none of its denials",
    },
  },
  {
    kind: "record",
    name: "IPv6 that a policy denies is not counted",
    file: "network/firewall/nftables/denials.ts",
    find: "as const satisfies readonly SetName[];",
    put: '.slice(0, 1) as readonly SetName[] as readonly ("denied4" | "denied6")[];',
    noticedBy: {
      file: denials,
      title:
        "each packet that a policy denies is counted by its pod and rule, and none that passes (nftables)",
    },
  },
  {
    kind: "record",
    name: "a restart of podnetd reports again what policies denied",
    file: "daemon/policies/denial-watch.ts",
    find: 'stored: eventsOfKind(parts.db, "denial"),',
    put: 'stored: eventsOfKind(parts.db, "guard"),',
    noticedBy: {
      file: denials,
      title:
        "a rule's first denial of a pod is an event, at most one a minute; a restart repeats none",
    },
  },
  {
    kind: "bound",
    name: "what the resolver refuses is counted without a bound",
    file: "daemon/policies/denials.ts",
    find: "const fits = rules.has(own) || rules.size < mostRules;",
    put: "const fits = rules.has(own) || rules.size < Infinity;",
    noticedBy: {
      file: "test/unit/daemon/policies/denials.test.ts",
      title: "rules beyond many are counted together, and none is lost",
    },
  },
  {
    kind: "bound",
    name: "every denied packet is logged",
    file: "network/firewall/nftables/denials.ts",
    find: '        "update @reported { meta priority limit rate 10/second burst 20 packets }",\n',
    put: "",
    noticedBy: {
      file: "test/unit/network/firewall/policy-table.test.ts",
      title: "what is logged of denied packets is bounded for each pod, and for each rule of it",
    },
  },
  {
    kind: "mark",
    name: "what is denied on the way to a pod is shown as the other side's",
    file: "daemon/policies/denial-log.ts",
    find: ": [record.outLink, packet.destination, packet.source];",
    put: ": [record.inLink, packet.source, packet.destination];",
    noticedBy: {
      file: log,
      title:
        "a denied packet is shown with its pod, rule and reason, of both families and directions",
    },
  },
  {
    kind: "access",
    name: "a host without the log has no policies",
    file: "network/firewall/nftables/rule-table.ts",
    find: "if (!isUnsupported(error) && !isAbsent(error)) throw error;",
    put: "throw error;",
    noticedBy: {
      file: log,
      title: "a kernel without the log has policies and counts, and says what it lacks",
    },
  },
  {
    kind: "bound",
    name: "verdicts wait without a bound for whoever reads slowly",
    file: "daemon/policies/verdicts.ts",
    find: "if (queue.length < mostWaiting) queue.push(verdict);",
    put: "if (queue.length < Infinity) queue.push(verdict);",
    noticedBy: {
      file: verdicts,
      title: "a slow reader misses verdicts and learns how many; another one gets all",
    },
  },
  {
    kind: "bound",
    name: "a pod that is denied much keeps more than its ring",
    file: "daemon/policies/verdicts.ts",
    find: "if (ring.last.push(verdict) > kept) ring.last.shift();",
    put: "ring.last.push(verdict);",
    noticedBy: {
      file: verdicts,
      title: "a pod that is denied much is kept at its rate, and pushes out none of another's",
    },
  },
  {
    kind: "record",
    name: "verdicts that podnetd does not read are dropped without a word",
    file: "daemon/policies/denial-log.ts",
    find: "this.#parts.verdicts.drop(records.length - taken.length);",
    put: "this.#parts.verdicts.drop(0 * taken.length);",
    noticedBy: {
      file: "test/unit/daemon/policies/denial-log.test.ts",
      title: "what podnetd is too slow to read is dropped, and its number shown",
    },
  },
  {
    kind: "bound",
    name: "the file of denials grows without a bound",
    file: "daemon/policies/audit-log.ts",
    find: "if (size > 0 && size + Buffer.byteLength(text) > mostBytes) return false;",
    put: "if (size < 0 && size + Buffer.byteLength(text) > mostBytes) return false;",
    noticedBy: {
      file: "test/unit/daemon/policies/audit-log.test.ts",
      title: "the file is bounded: it begins anew, and the one before it stays",
    },
  },
  {
    kind: "record",
    name: "a line that could not be written is lost without a word",
    file: "daemon/policies/audit-log.ts",
    find: "this.#dropped += lines.length;",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/policies/audit-log.test.ts",
      title: "what cannot be written is dropped and counted, and nothing waits for it",
    },
  },
  {
    kind: "access",
    name: "a port that goes takes the policies of its pod's other ports along",
    file: "network/firewall/guarded.ts",
    find: "(marks.size === 0 || marks.has(owner.mark));",
    put: "(marks.size >= 0 || marks.has(owner.mark));",
    noticedBy: {
      file: kernel,
      title:
        "a port of a pod that comes, is looked at or goes leaves the policies of its other ports",
    },
  },
];
