import type { Fault } from "../fault.ts";

const hostile = "test/unit/cli/copy-hostile.test.ts";

/** What `podnet cp` takes from a guest. */
export const copyFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "a guest's link comes where a file was asked for",
    file: "cli/copy/unpacking.ts",
    find: "if (is !== said) throw",
    put: "if (is === undefined) throw",
    noticedBy: {
      file: hostile,
      title:
        "a link where a file was asked for is refused: there is nothing for the next copy to follow",
    },
  },
  {
    kind: "mark",
    name: "a guest's links may lead anywhere",
    file: "cli/copy/unpacking.ts",
    find: 'return ups <= depth && !parts.slice(ups).includes("..");',
    put: "return ups >= 0 * depth;",
    noticedBy: {
      file: hostile,
      title: "links that lead out of what is copied are left out, unless asked for; others stay",
    },
  },
  {
    kind: "mark",
    name: "a guest's link may stand above another one",
    file: "cli/copy/unpacking.ts",
    find: "for (const at of this.#links.keys()) this.#makeParents(at);",
    put: "",
    noticedBy: {
      file: "test/unit/cli/copy.test.ts",
      title: "a hostile archive writes nothing outside: a link through a link",
    },
  },
  {
    kind: "bound",
    name: "what comes behind the end of an archive is taken",
    file: "cli/copy/tar-reader.ts",
    find: "if (this.#behind > mostPadding || bytes.some((byte) => byte !== 0))",
    put: "if (this.#behind > 64 * mostPadding)",
    noticedBy: {
      file: hostile,
      title: "an archive without end is given up, and its program ended: entries behind the end",
    },
  },
  {
    kind: "bound",
    name: "paths of an archive may be as deep as they like",
    file: "cli/copy/unpacking.ts",
    find: "parts.length > most.depth ||",
    put: "",
    noticedBy: { file: hostile, title: "bytes, links and lengths of paths are bounded" },
  },
  {
    kind: "bound",
    name: "a guest may be silent for ever",
    file: "cli/copy/in-guest.ts",
    find: "setTimeout(() => this.#late(error), this.#ms)",
    put: "setTimeout(() => this.#late(error), 100 * this.#ms)",
    noticedBy: {
      file: hostile,
      title: "a guest that falls silent, or is interrupted, leaves nothing behind",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "what has come of a copy stays when it ends early",
    file: "cli/copy/staging.ts",
    find: "rmSync(this.root, { recursive: true, force: true });",
    put: "void rmSync;",
    noticedBy: {
      file: hostile,
      title: "an archive without end is given up, and its program ended: zeros behind the end",
    },
  },
  {
    kind: "bound",
    name: "a hyperstart takes any amount of input",
    file: "guest-init/channel/exec-session.ts",
    find: "if (this.#given <= input.most) return;",
    put: "return;",
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title:
        "56 KiB of input arrive though the program reads none of it for a while; more is refused",
    },
  },
  {
    kind: "record",
    name: "a block that did not arrive whole is followed by the next one",
    file: "cli/copy/into-guest.ts",
    find: "if (arrived === sent) continue;",
    put: "continue;",
    noticedBy: {
      file: "test/unit/cli/copy-hyperstart.test.ts",
      title: "a guest that loses input is found out, and what was there stays",
    },
  },
  {
    kind: "bound",
    name: "a copy into a hyperstart is sent in one go",
    file: "cli/copy/into-guest.ts",
    find: "(await losesInput(guest))",
    put: "(await losesInput(guest)) && !guest",
    noticedBy: {
      file: "test/unit/cli/copy-hyperstart.test.ts",
      title: "200 KB go into a hyperstart whole, in blocks, with the few programs that it links",
    },
  },
  {
    kind: "record",
    name: "a copy whose script was killed counts as one that is done",
    file: "cli/copy/in-guest.ts",
    find: "lastWord === undefined || last.trim() === lastWord;",
    put: "true;",
    noticedBy: {
      file: "test/unit/cli/copy-hyperstart.test.ts",
      title:
        "a copy whose script is killed is no success, though the guest says that it ended with 0",
    },
  },
  {
    kind: "undo",
    name: "a copy is unpacked where it is to be",
    file: "cli/copy/into-guest.ts",
    find: 'if [ -z "$3" ] || {',
    put: "if true || {",
    noticedBy: {
      file: "test/unit/cli/copy-hyperstart.test.ts",
      title: "a copy that breaks off on its way leaves what was there, with podnet's agent too",
    },
  },
];
