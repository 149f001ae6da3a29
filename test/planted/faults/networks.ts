import type { Fault } from "../fault.ts";

const unit = "test/unit/daemon/networks/networks.test.ts";
const kernel = "test/kernel/daemon-networks.test.ts";
const ranges =
  "automatic addresses come from the ranges alone, in turn; others are there for who asks";

/** Networks made by API: what they may have, and that nothing is left half done. */
export const networksFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "ports of an isolated network are as they were",
    file: "daemon/pods/interfaces/pod-ports.ts",
    find: "isolated = network?.isolated ?? false",
    put: "isolated = false",
    noticedBy: {
      file: unit,
      title: "ports follow their network, but for what their interface asked for itself",
    },
  },
  {
    kind: "bound",
    name: "addresses that rest outside the ranges are given",
    file: "ipallocator/ledger.ts",
    find: "if (this.#isSearched(this.#records.offsetOf(record))) yield record;",
    put: "yield record;",
    noticedBy: { file: unit, title: ranges },
  },
  {
    kind: "bound",
    name: "the search runs on behind the end of a range",
    file: "ipallocator/ledger.ts",
    find: "if (found <= last) return found;",
    put: "return found;",
    noticedBy: { file: unit, title: ranges },
  },
  {
    kind: "undo",
    name: "a change that was cut short is not gone back from",
    file: "daemon/networks/store.ts",
    find: "`UPDATE networks SET definition = before, before = NULL, state = 'ready'",
    put: "`UPDATE networks SET before = NULL, state = 'ready'",
    noticedBy: {
      file: unit,
      title: "rows: as written, changed and gone back, with what rests outside forgotten",
    },
  },
  {
    kind: "bound",
    name: "what other networks have is not looked at",
    file: "daemon/networks/plan-network.ts",
    find: ".filter((subnet) => overlaps(subnet, cidr))",
    put: ".filter((subnet) => subnet === cidr)",
    noticedBy: { file: unit, title: "an overlap is named by what it is with" },
  },
  {
    kind: "bound",
    name: "routes of the host are not looked at",
    file: "network/bridge/overlap.ts",
    find: "table !== localTable &&",
    put: "table === localTable &&",
    noticedBy: {
      file: kernel,
      title: "what the host has already is not overlapped, by name, unless it is forced",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a network that the host refuses leaves its rules",
    file: "daemon/networks/networks.ts",
    find: "await this.#changes.tidy(definition.name, () => this.#takeAway(definition.name));",
    put: "",
    noticedBy: {
      file: kernel,
      title: "what the host refuses half way leaves nothing, and what was there is as it was",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "drift looks at the networks there were at the start alone",
    file: "daemon/networks/network-entries.ts",
    find: "return Array.from(this.#entries.values(), (entry) => this.fragmentOf(entry));",
    put: "return Array.from(this.#entries.values(), (entry) => this.fragmentOf(entry)).slice(0, 1);",
    noticedBy: {
      file: kernel,
      title: "what others do to a network that was made by API is reported and healed",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "what a change left that could not be taken back is not looked for",
    file: "daemon/networks/network-changes.ts",
    find: "entry.left = [...entry.left, definition];",
    put: "",
    noticedBy: {
      file: unit,
      title: "a change that can be neither made nor taken back is looked for until it has gone",
    },
  },
  {
    kind: "undo",
    name: "a bridge that has no mark yet is not looked for once its create has failed",
    file: "daemon/networks/networks.ts",
    find: "await host.remove(this.#entries.plain(row.definition), AbortSignal.timeout(hostMs));",
    put: 'await host.remove({ kind: "network", key: name }, AbortSignal.timeout(hostMs));',
    noticedBy: {
      file: unit,
      title: "a create that can be neither done nor undone is undone by a delete, its bridge named",
    },
  },
];
