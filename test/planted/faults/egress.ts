import type { Fault } from "../fault.ts";

const decide = "test/unit/policy/decide.test.ts";
const domain = "test/unit/policy/domain.test.ts";
const table = "test/unit/relay/table.test.ts";
const dns = "test/unit/policy/dns.test.ts";

/** Where connections of pods may lead: policies, names, the relay. */
export const egressFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a wildcard matches names that end alike, without a label's boundary",
    file: "policy/domain.ts",
    find: "pattern.below ? name.endsWith(`.${pattern.name}`) : name === pattern.name;",
    put: "pattern.below ? name.endsWith(pattern.name) : name === pattern.name;",
    noticedBy: {
      file: domain,
      title:
        "*.example.com has every name below, at any depth, and neither example.com nor names that only end alike",
    },
  },
  {
    kind: "access",
    name: "a rule of a policy stands before the floor",
    file: "policy/compile.ts",
    find: `      ...egressFloor(surroundings),
      ...resolverOnly(policies),
      ...entriesOf(policies, "egress", surroundings.pods),`,
    put: `      ...resolverOnly(policies),
      ...entriesOf(policies, "egress", surroundings.pods),
      ...egressFloor(surroundings),`,
    noticedBy: {
      file: decide,
      title: "no rule removes the floor: the host but for what it serves, and the cloud's metadata",
    },
  },
  {
    kind: "access",
    name: "a name leads to an address inside",
    file: "policy/decide.ts",
    find: "if (flow.ip !== undefined && isInternal(flow.ip)) return undefined;",
    put: "",
    noticedBy: {
      file: decide,
      title: "names are for addresses outside: inside, cidrs and pods decide",
    },
  },
  {
    kind: "access",
    name: "a connection that hides its name passes a rule that denies names",
    file: "policy/decide.ts",
    find: 'if (flow.name === null) return denied("it does not say its name");',
    put: "if (flow.name === null) return undefined;",
    noticedBy: {
      file: decide,
      title: "where a name is denied, what hides its name is denied with it",
    },
  },
  {
    kind: "access",
    name: "the readable name counts although ECH hides another",
    file: "policy/client-hello.ts",
    find: 'return seen.has(encryptedClientHello) ? refused("hides-name") : name;',
    put: "return name;",
    noticedBy: {
      file: "test/unit/policy/client-hello.test.ts",
      title: "Encrypted Client Hello hides the name, whatever the readable one is",
    },
  },
  {
    kind: "access",
    name: "a target and a Host field that differ are taken for the target",
    file: "policy/request-head.ts",
    find: "if (named !== undefined && host !== undefined && withoutPort(named) !== withoutPort(host))",
    put: "if (named === undefined && host === undefined)",
    noticedBy: {
      file: "test/unit/policy/request-head.test.ts",
      title: "where a request goes, or why it is refused: another host in the target",
    },
  },
  {
    kind: "access",
    name: "the relay dials the destination instead of the name's own address",
    file: "relay/route.ts",
    find: "const ip = nearest(entry.addressesOf(name), to.ip);",
    put: "const ip = entry.addressesOf(name).length > 0 ? to.ip : undefined;",
    noticedBy: {
      file: table,
      title: "a route leads to the name's own address, one of the destination's family first",
    },
  },
  {
    kind: "access",
    name: "the relay does not ask about the address that it dials",
    file: "relay/route.ts",
    find: 'return last.verdict === "allow" ? { decision: last, ip } : { decision: last };',
    put: "return { decision: last, ip };",
    noticedBy: {
      file: table,
      title: "a route leads to the name's own address, one of the destination's family first",
    },
  },
  {
    kind: "access",
    name: "a second request on a connection goes to any host",
    file: "relay/connection.ts",
    find: 'if (head > 0 && decision.by !== "address" && !upgrade) {',
    put: 'if (head > 0 && decision.by === "address" && !upgrade) {',
    noticedBy: {
      file: "test/kernel/relay.test.ts",
      title: "HTTP as to a proxy passes, and no second request follows the first to another host",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "an answer leads inside",
    file: "policy/dns-answer.ts",
    find: "!isInside(ip) || mayLead(list, ip)",
    put: "ip.length > 0 || isInside(ip) || mayLead(list, ip)",
    noticedBy: {
      file: dns,
      title: "addresses inside are taken out of an answer, and one that has no other is refused",
    },
  },
  {
    kind: "access",
    name: "an address is answered that the relay does not know",
    file: "daemon/dns/name-policy.ts",
    find: "return opened ? bytes : servFail(query);",
    put: "return opened || bytes.length > 0 ? bytes : servFail(query);",
    noticedBy: {
      file: "test/unit/daemon/dns/name-policy.test.ts",
      title: "what cannot be opened is not answered",
    },
  },
  {
    kind: "access",
    name: "a pod resolves names that its policy does not allow",
    file: "daemon/dns/resolver.ts",
    find: "    if (refusal !== undefined) return refusal;\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/dns/name-policy.test.ts",
      title: "another name is refused with the rule's own words, and no server is asked for it",
    },
  },
  {
    kind: "access",
    name: "the relay dials the host's own addresses",
    file: "relay/route.ts",
    find: "return route.ip !== undefined && isOwn(route.ip)",
    put: "return route.ip === undefined && isOwn(to.ip)",
    noticedBy: {
      file: table,
      title: "a route leads to the name's own address, one of the destination's family first",
    },
  },
  {
    kind: "access",
    name: "connections to the host itself go to the relay",
    file: "network/firewall/nftables/policy-table.ts",
    find: '        "fib daddr type local return",\n',
    put: "",
    noticedBy: {
      file: "test/kernel/firewall-policy.test.ts",
      title: "connections whose name decides go to the relay, and no others (nftables)",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "another relay does not get the answers that still hold",
    file: "relay/table.ts",
    find: "    for (const entry of this.#pods.values()) yield* entry.answers();\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/policies/relayed-pods.test.ts",
      title: "another relay gets what the one before it had, answers included",
    },
  },
];
