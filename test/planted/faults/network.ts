import type { Fault } from "../fault.ts";

const memory = "test/unit/network-memory.test.ts";
const diff = "test/unit/network-diff.test.ts";
const iptables = "test/unit/iptables-diff.test.ts";
const host = "test/kernel/network-host.test.ts";
const inspect = "test/kernel/network-inspect.test.ts";
const watch = "test/kernel/daemon-drift-watch.test.ts";

/** The host's network: its one queue, what is others', firewall, drift. */
export const networkFaults: readonly Fault[] = [
  {
    kind: "lock",
    name: "changes of the network are made side by side",
    file: "network/queue.ts",
    find: "this.#tail = result.catch(() => {});",
    put: "",
    noticedBy: {
      file: memory,
      title: "Tasks run one at a time in their order, past failures; an aborted one is not started",
    },
  },
  {
    kind: "record",
    name: "a setting is changed before what it was is stored",
    file: "network/memory.ts",
    find: "this.#store(value);\n    this.#value = value;",
    put: "this.#value = value;\n    this.#store(value);",
    noticedBy: { file: memory, title: "A store that fails leaves the memory as it was" },
  },
  {
    kind: "record",
    name: "forwarding is switched on before what it was is stored",
    file: "network/apply.ts",
    find: 'if (forward && to === "1") {',
    put: 'if (forward && to === "1") sysctl.write(key, to);\n    if (forward && to === "1") {',
    noticedBy: { file: host, title: "A store that cannot remember prevents the change" },
  },
  {
    kind: "mark",
    name: "what another boot remembered is believed",
    file: "network/memory.ts",
    find: "this.#value = initial?.host === host ? initial : {",
    put: "this.#value = initial !== undefined ? { ...initial, host } : {",
    noticedBy: {
      file: memory,
      title: "What is remembered is stored before it counts, once, and is void on another host",
    },
  },
  {
    kind: "undo",
    name: "taking away ends at its first failure",
    file: "network/ensure.ts",
    find: "failures.push(toPodnetError(error));\n        }",
    put: "failures.push(toPodnetError(error));\n          break;\n        }",
    noticedBy: { file: host, title: "Taking away goes on past what fails, and reports all of it" },
  },
  {
    kind: "undo",
    name: "the way down leaves forwarding on",
    file: "network/apply.ts",
    find: "sysctl.write(key, to);\n    // Restoring",
    put: 'if (to === "1" || !forward) sysctl.write(key, to);\n    // Restoring',
    noticedBy: { file: host, title: "Taking away goes on past what fails, and reports all of it" },
  },
  {
    kind: "undo",
    name: "what the kernel changes along with forwarding stays changed",
    file: "network/apply.ts",
    find: "memory.rememberForward(from, besideForward(sysctl, names));",
    put: "void [besideForward, names];\n      memory.rememberForward(from, []);",
    noticedBy: {
      file: "test/kernel/network-foreign.test.ts",
      title: "what the kernel changes along with ip_forward is put back with it",
    },
  },
  {
    kind: "undo",
    name: "an adopted bridge stays up",
    file: "network/apply.ts",
    find: "if (up) memory.rememberRaised(name);",
    put: "",
    noticedBy: {
      file: host,
      title: "A bridge that fits is adopted: never marked, never deleted, and down again if it was",
    },
  },
  {
    kind: "mark",
    name: "whatever is in podnet's group of links is swept away",
    file: "network/sweep.ts",
    find: "return owner === undefined ? isUnfinished(link, hostSeed) : isOrphan(owner, known);",
    put: "if (owner === undefined) return isUnfinished(link, hostSeed) || link.group === 73;\n      return isOrphan(owner, known);",
    noticedBy: { file: diff, title: "A sweep names only what bears our mark and has no row" },
  },
  {
    kind: "mark",
    name: "an alias that begins like ours is a mark",
    file: "network/ownership.ts",
    find: "(network|chain):([A-Za-z0-9_.-]+)",
    put: "(network|chain):([A-Za-z0-9_. \\n-]+)",
    noticedBy: {
      file: diff,
      title: "Marks are read back as they were written, and nothing else is a mark",
    },
  },
  {
    kind: "mark",
    name: "a link of a port's name is healed though it is another's",
    file: "network/inspect.ts",
    find: "refuseUnmarked(fragment, changes);",
    put: "void refuseUnmarked;",
    noticedBy: {
      file: inspect,
      title: "what is no port any more is one again; what bears no mark is not taken for it",
    },
  },
  {
    kind: "mark",
    name: "a tap that bears another pod's mark is taken",
    file: "network/diff-pod.ts",
    find: "if (tap.alias !== undefined && tap.alias !== port.alias) throw taken(port, tap.alias);",
    put: "void taken;",
    noticedBy: {
      file: host,
      title: "A missing tap, a missing bridge and a tap of somebody else's name are told apart",
    },
  },
  {
    kind: "mark",
    name: "links that somebody put into the graveyard group are deleted with ours",
    file: "network/apply.ts",
    find: "if (buried.every((index) => doomed.includes(index))) {",
    put: "{",
    noticedBy: {
      file: host,
      title:
        "A sweep ends what has no row, dozens at once, and spares the rest and what bears no mark",
    },
  },
  {
    kind: "mark",
    name: "any chain of podnet's name is podnet's",
    file: "network/iptables/diff.ts",
    find: 'if (found !== "empty") return found !== "foreign";',
    put: 'if (found !== "empty") return true;',
    noticedBy: {
      file: iptables,
      title: "A chain of our name is refused: with a rule of somebody's",
    },
  },
  {
    kind: "mark",
    name: "an empty chain of podnet's name is podnet's",
    file: "network/iptables/diff.ts",
    find: "return twin || wanted.remembered(table, chain);",
    put: "return twin || wanted.remembered(table, chain) || true;",
    noticedBy: { file: iptables, title: "A chain of our name is refused: empty and never ours" },
  },
  {
    kind: "undo",
    name: "rules that are not as planned stay beside those that are",
    file: "network/iptables/place.ts",
    find: "lines.push(`-D ${chain} ${rule.text}`);\n    list.splice(list.indexOf(rule), 1);",
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
    file: "network/iptables/place.ts",
    find: "if (same) return [];",
    put: "void same;",
    noticedBy: {
      file: iptables,
      title: "Applied once there is nothing left to do, and taken away the host is as before",
    },
  },
  {
    kind: "record",
    name: "a table is committed line by line",
    file: "network/iptables/diff.ts",
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
    file: "network/iptables/place.ts",
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
    file: "network/ensure.ts",
    find: 'if (!isPodnetError(error, "FIREWALL_FAILED")) throw error;\n      await apply();',
    put: "throw error;",
    noticedBy: {
      file: host,
      title: "Another program writing rules at the same time neither fails nor is failed",
    },
    slow: true,
  },
  {
    kind: "escape",
    name: "a control character may stand in what iptables-restore reads",
    file: "network/iptables/save-format.ts",
    find: "if (/[\\u0000-\\u001f\\u007f]/.test(word))",
    put: "if (word === '\\u0000')",
    noticedBy: {
      file: "test/unit/iptables-save-format.test.ts",
      title: "No control character reaches a restore payload",
    },
  },
  {
    kind: "bound",
    name: "a bridge takes any number of ports",
    file: "network/port-limit.ts",
    find: "if (room.used + room.wanted <= maxBridgePorts) return;",
    put: "if (room.used <= maxBridgePorts) return;",
    noticedBy: { file: diff, title: "Room for ports is refused before it is over" },
  },
  {
    kind: "access",
    name: "the bridge of a network without IPv6 speaks it",
    file: "network/diff-network.ts",
    find: 'value: hasIpv6 ? "0" : "1" }',
    put: 'value: hasIpv6 ? "0" : "0" }',
    noticedBy: { file: diff, title: "From states of the host to changes, golden" },
  },
  {
    kind: "access",
    name: "a guest may become the host's IPv6 router",
    file: "network/diff-network.ts",
    find: 'accept_ra`, value: "0" },',
    put: 'accept_ra`, value: "1" },',
    noticedBy: { file: diff, title: "From states of the host to changes, golden" },
  },
  {
    kind: "access",
    name: "the host's end of a port speaks IPv6 to its guest",
    file: "network/apply.ts",
    find: 'writeOptional(sysctl, `net/ipv6/conf/${link}/addr_gen_mode`, "1");',
    put: "",
    noticedBy: { file: host, title: "Ports come and go and the bridge keeps its MAC and MTU" },
  },
  {
    kind: "access",
    name: "an isolated port is up before it is isolated, and never is",
    file: "network/apply.ts",
    find: "if (isolated) await netlink.changeBridgePort(index, { isolated });\n",
    put: "",
    noticedBy: {
      file: "test/kernel/network-traffic.test.ts",
      title:
        "Isolated ports exchange nothing; of an isolated network not by way of the gateway either",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "a bridge takes the MAC of its lowest port",
    file: "network/diff-network.ts",
    find: "...(bridge.mac === mac ? {} : { mac }),",
    put: "",
    noticedBy: { file: diff, title: "From states of the host to changes, golden" },
  },
  {
    kind: "release",
    name: "the host believes in the MAC an address had before",
    file: "network/diff-pod.ts",
    find: "changes.push(...forgetNeighbours([port]));",
    put: "",
    noticedBy: {
      file: diff,
      title:
        "A port is marked, cleared of its address's past and comes up last; when it is so, nothing is done",
    },
  },
  {
    kind: "repair",
    name: "the kernel's events are not heeded",
    file: "daemon/drift/drift.ts",
    find: "this.#suspects.links.add(event.link.name);",
    put: "",
    noticedBy: {
      file: watch,
      title: "events of our links bring one look at links, those of others none",
    },
  },
  {
    kind: "repair",
    name: "what the kernel sends no event for is not looked at",
    file: "daemon/drift/drift.ts",
    find: "if (now === this.#clean) return false;",
    put: "if (now === this.#clean || this.#clean !== undefined) return false;",
    noticedBy: { file: watch, title: "an idle host is looked at by its fingerprint alone" },
  },
  {
    kind: "repair",
    name: "what cannot be healed is not looked at again",
    file: "daemon/drift/drift.ts",
    find: "this.#sick.set(part.key, sick);",
    put: "",
    noticedBy: {
      file: watch,
      title: "what cannot be healed is tried at every look, and told once",
    },
  },
  {
    kind: "lock",
    name: "what is taken down on purpose is healed",
    file: "daemon/drift/drift.ts",
    find: "if (this.#resting > 0 || this.#over.signal.aborted) return;",
    put: "if (this.#over.signal.aborted) return;",
    noticedBy: { file: watch, title: "nothing is looked at while it rests, and all afterwards" },
  },
  {
    kind: "bound",
    name: "podnet fights with whoever keeps undoing its repairs",
    file: "daemon/drift/patience.ts",
    find: "known.untilMs = nowMs + known.pauseMs;",
    put: "",
    noticedBy: {
      file: "test/unit/daemon-drift.test.ts",
      title: "what keeps being undone is repaired less and less often, but it is",
    },
  },
  {
    kind: "repair",
    name: "a rule that others flushed is not seen",
    file: "network/iptables/firewall.ts",
    find: 'const nft = programs.generation?.() ?? (await save(programs, "nft", signal));',
    put: 'const nft = "";',
    noticedBy: {
      file: inspect,
      title: "its rules are flushed: seen without being touched, then healed",
    },
  },
  {
    kind: "repair",
    name: "events that were lost are not made up for",
    file: "linux/rtnetlink-events.ts",
    find: "this.#onResync();",
    put: "",
    noticedBy: {
      file: "test/kernel/linux-rtnetlink.test.ts",
      title: "too many events at once are counted, followed by a resync, and the watch goes on",
    },
  },
  {
    kind: "bound",
    name: "a netlink message may announce more than there is",
    file: "linux/rtnetlink/message.ts",
    find: "if (size < headerSize || offset + size > bytes.length)",
    put: "if (size < headerSize)",
    noticedBy: {
      file: "test/unit/rtnetlink-codec.test.ts",
      title: "a message with a length that lies is refused",
    },
  },
  {
    kind: "bound",
    name: "a rule's command runs through a shell",
    file: "linux/command.ts",
    find: "stripFinalNewline: false,",
    put: "stripFinalNewline: false,\n      shell: true,",
    noticedBy: {
      file: "test/unit/linux-command.test.ts",
      title: "no shell looks at the arguments",
    },
  },
  {
    kind: "bound",
    name: "a command may take for ever",
    file: "linux/command.ts",
    find: "timeout: timeoutMs,",
    put: "",
    noticedBy: {
      file: "test/unit/linux-command.test.ts",
      title: "deadline and cancellation end the command",
    },
  },
];
