import type { Fault } from "../fault.ts";

const kernel = "test/kernel/network-nftables.test.ts";
const elements = "test/kernel/set-elements.test.ts";

/** The table of nftables: whose it is, what it costs, and how it comes after another firewall. */
export const nftablesFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "any table of podnet's name is podnet's",
    file: "network/firewall/nftables/rule-table.ts",
    find: 'if (!empty || !this.#memory.madeTable(this.#model.name)) return "foreign";',
    put: "void empty;",
    noticedBy: {
      file: kernel,
      title: "a table of our name that is another's is refused and left alone",
    },
  },
  {
    kind: "mark",
    name: "a foreign element is taken over",
    file: "network/firewall/nftables/diff.ts",
    find: "if (isForeign && kindOf(element.set).value !== undefined) throw taken(element, found, table);",
    put: "",
    noticedBy: {
      file: kernel,
      title: "a port that another program translates is refused and left alone",
    },
  },
  {
    kind: "repair",
    name: "what others have changed of nftables goes unnoticed",
    file: "network/firewall/nftables/rule-table.ts",
    find: "if (generation === undefined || generation !== this.#last) this.#epoch++;",
    put: "void generation;",
    noticedBy: { file: kernel, title: "drift: an element is deleted" },
  },
  {
    kind: "repair",
    name: "a rule is known by its comment alone",
    file: "network/firewall/nftables/diff.ts",
    find: "return (known.get(comment) ?? text) === text;",
    put: "return true;",
    noticedBy: { file: kernel, title: "drift: a rule says something else under its comment" },
  },
  {
    kind: "bound",
    name: "the table is listed for each port",
    file: "network/firewall/nftables/rule-table.ts",
    find: "if (asked.size > mostAsked) return this.look(signal);",
    put: "if (asked.size > 0) return this.look(signal);",
    noticedBy: {
      file: kernel,
      title: "a port costs one transaction of the same length, whatever others there are",
    },
  },
  {
    kind: "release",
    name: "an element of a pod that is gone stays",
    file: "network/firewall/nftables/driver.ts",
    find: "remove.push(...table.elements.of(mark));",
    put: "",
    noticedBy: { file: kernel, title: "what has no row is swept" },
  },
  {
    kind: "bound",
    name: "values of a concatenation do not begin at registers",
    file: "linux/nftables/datum.ts",
    find: "const padded = parts.map(({ length }) => (length + 3) & ~3);",
    put: "const padded = parts.map(({ length }) => length);",
    noticedBy: {
      file: elements,
      title: "nft reads what we have written, of each set of all tables, and removes it",
    },
  },
  {
    kind: "mark",
    name: "an element of another program is taken over where its value is the wanted one",
    file: "linux/nftables/set-elements.ts",
    find: "flags: NLM_F_CREATE | NLM_F_EXCL },",
    put: "flags: NLM_F_CREATE },",
    noticedBy: {
      file: elements,
      title: "a transaction is made whole, or not at all with the element that is refused",
    },
  },
  {
    kind: "record",
    name: "elements that the kernel has refused are taken for made",
    file: "linux/nftables/element-socket.ts",
    find: "if (first !== undefined) throw refusal(what, first);",
    put: "void first;",
    noticedBy: {
      file: elements,
      title: "a transaction is made whole, or not at all with the element that is refused",
    },
  },
];
