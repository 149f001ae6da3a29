import type { Fault } from "../fault.ts";

const kernel = "test/kernel/firewall-policy.test.ts";
const rules = "the kernel decides about a pod's flows as the policy does, at once (nftables)";
const repaired = "what others take from a policy's chain is put back, and flows stay closed";

/** Policies of pods: their chains, who shares them, and what puts them back. */
export const podPoliciesFaults: readonly Fault[] = [
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
];
