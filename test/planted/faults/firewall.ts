import type { Fault } from "../fault.ts";

const iptables = "test/unit/network/firewall/iptables-diff.test.ts";

/** Rules, and the commands that make them. */
export const firewallFaults: readonly Fault[] = [
  {
    kind: "undo",
    name: "taking away ends at its first failure",
    file: "network/bridge/open-host-network.ts",
    find: "failures.push(toPodnetError(error));\n        }",
    put: "failures.push(toPodnetError(error));\n          break;\n        }",
    noticedBy: {
      file: "test/kernel/network-host-ports.test.ts",
      title: "Taking away goes on past what fails, and reports all of it",
    },
  },
  {
    kind: "mark",
    name: "any chain of podnet's name is podnet's",
    file: "network/firewall/iptables/diff.ts",
    find: 'if (found !== "empty") return found !== "foreign";',
    put: 'if (found !== "empty") return true;',
    noticedBy: {
      file: iptables,
      title: "A chain of our name is refused: with a foreign rule",
    },
  },
  {
    kind: "mark",
    name: "an empty chain of podnet's name is podnet's",
    file: "network/firewall/iptables/diff.ts",
    find: "return twin || wanted.remembered(table, chain);",
    put: "return twin || wanted.remembered(table, chain) || true;",
    noticedBy: { file: iptables, title: "A chain of our name is refused: empty and never ours" },
  },
  {
    kind: "undo",
    name: "rules that are not as planned stay alongside those that are",
    file: "network/firewall/iptables/place.ts",
    find: "lines.push(`-D ${chain} ${rule.text}`);\n    list.splice(\n      list.findIndex(({ text }) => text === rule.text),\n      1,\n    );",
    put: "void rule;",
    noticedBy: {
      file: iptables,
      title:
        "Whatever became of our rules, one repair restores them, a second finds nothing, foreign rules stay in order",
    },
  },
  {
    kind: "repair",
    name: "rules that are as planned are made once more",
    file: "network/firewall/iptables/place.ts",
    find: "if (said(found) === said(rules))",
    put: "if (said(found) === `${said(rules)}!`)",
    noticedBy: {
      file: iptables,
      title: "Applied once there is nothing left to do, and taken away the host is as before",
    },
  },
  {
    kind: "record",
    name: "a table is committed line by line",
    file: "network/firewall/iptables/diff.ts",
    find: '`*${edit.table}\\n${edit.lines.join("\\n")}\\nCOMMIT\\n`;',
    put: 'edit.lines.map((line) => `*${edit.table}\\n${line}\\nCOMMIT\\n`).join("");',
    noticedBy: {
      file: "test/kernel/network-firewall.test.ts",
      title: "A refused commit changes nothing and says what iptables said",
    },
  },
  {
    kind: "release",
    name: "the chain stays when its last rule has gone",
    file: "network/firewall/iptables/place.ts",
    find: "lines.push(`-X ${chain}`);",
    put: "void chain;",
    noticedBy: {
      file: iptables,
      title: "Applied once there is nothing left to do, and taken away the host is as before",
    },
  },
  {
    kind: "repair",
    name: "another program that writes rules meanwhile fails ours",
    file: "network/bridge/open-host-network.ts",
    find: 'if (!isPodnetError(error, "FIREWALL_FAILED")) throw error;\n      this.#repeated?.(error);\n      await apply();',
    put: "throw error;",
    noticedBy: {
      file: "test/kernel/network-rules.test.ts",
      title: "A commit that another program overtook is made once more",
    },
  },
  {
    kind: "escape",
    name: "a control character may stand in what iptables-restore reads",
    file: "network/firewall/iptables/save-format.ts",
    find: "if (/[\\u0000-\\u001f\\u007f]/.test(word))",
    put: "if (word === '\\u0000')",
    noticedBy: {
      file: "test/unit/network/firewall/iptables-save-format.test.ts",
      title: "No control character reaches a restore payload",
    },
  },
  {
    kind: "bound",
    name: "a rule's command runs through a shell",
    file: "linux/processes/command.ts",
    find: "stripFinalNewline: false,",
    put: "stripFinalNewline: false,\n      shell: true,",
    noticedBy: {
      file: "test/unit/linux/processes/command.test.ts",
      title: "no shell looks at the arguments",
    },
  },
  {
    kind: "bound",
    name: "a command may take for ever",
    file: "linux/processes/command.ts",
    find: "timeout: timeoutMs,",
    put: "",
    noticedBy: {
      file: "test/unit/linux/processes/command.test.ts",
      title: "deadline and cancellation end the command",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "bound",
    name: "what a command has started outlives it",
    file: "linux/processes/command.ts",
    find: "killDescendants: true,",
    put: "",
    noticedBy: {
      file: "test/unit/linux/processes/command.test.ts",
      title: "a command's children end with it, at its deadline and when the caller gives up",
    },
  },
  {
    kind: "bound",
    name: "a child that takes no notice of SIGTERM outlives its command",
    file: "linux/processes/command-end.ts",
    find: 'signalGroup(pid, "SIGKILL");',
    put: "",
    noticedBy: {
      file: "test/unit/linux/processes/command.test.ts",
      title:
        "a child that takes no notice of SIGTERM is killed, though no caller waits for what it prints",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "who holds a command's outputs holds up its deadline",
    file: "linux/processes/command-end.ts",
    find: "output.destroy();",
    put: "void output;",
    noticedBy: {
      file: "test/unit/linux/processes/command.test.ts",
      title:
        "who has left a command's process group and holds its outputs does not hold up its deadline",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "escape",
    name: "a published port is open by a route to the pod, too",
    file: "network/firewall/iptables/published-rules.ts",
    find: '...match(podPort), ...translated, ...ours, "-j", "ACCEPT"',
    put: '...match(podPort), ...ours, "-j", "ACCEPT"',
    noticedBy: {
      file: "test/kernel/firewall-ports.test.ts",
      title:
        "iptables-nft alone, bridge-nf 0: what is published is reached from everywhere, and nothing else of the pod",
    },
  },
  {
    kind: "escape",
    name: "a mark of another program opens a pod",
    file: "network/firewall/nftables/published-table.ts",
    find: "        clearMark,\n        ...translatedMatches",
    put: "        ...translatedMatches",
    noticedBy: {
      file: "test/kernel/firewall-ports.test.ts",
      title:
        "a packet that another program has marked as podnet does is not let in, and none leaves with the mark",
    },
  },
  {
    kind: "release",
    name: "ports of an earlier podnet stay in iptables' chains",
    file: "network/firewall/open.ts",
    find: "...(await mapped.compareFormer(signal)),",
    put: "",
    noticedBy: {
      file: "test/kernel/firewall-switch.test.ts",
      title:
        "from a podnet whose ports stood in the chains of iptables-nft there is no gap, and none stays there",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a table of ports that the kernel refuses leaves them unpublished",
    file: "network/firewall/nftables/rule-table.ts",
    find: "if (this.#model.optional?.replaced === true) throw error;",
    put: "",
    noticedBy: {
      file: "test/kernel/firewall-ports.test.ts",
      title: "a table of ports that is refused when the first port is published costs no port",
    },
  },
  {
    kind: "undo",
    name: "a host that forwards IPv6 forgets its own way out",
    file: "network/bridge/forward.ts",
    find: 'sysctl.write(each, "2");',
    put: "void each;",
    noticedBy: {
      file: "test/kernel/firewall-host.test.ts",
      title:
        "A host keeps the default route that it was advertised while it forwards, and listens as before after it",
    },
  },
  {
    kind: "bound",
    name: "rules of IPv6 are looked at where there is none",
    file: "network/firewall/iptables/driver.ts",
    find: "memory.chains(6).any ?",
    put: "memory.chains(4).any ?",
    noticedBy: {
      file: "test/kernel/firewall-host.test.ts",
      title: "With IPv4 alone no command of IPv6 is run, and nothing of it is made",
    },
  },
];
