import type { Fault } from "../fault.ts";

const kernel = "test/kernel/attachments.test.ts";
const rates = "test/kernel/attachment-rates.test.ts";
const join = "test/kernel/netns-join.test.ts";
const namespace = "test/kernel/linux-namespace.test.ts";

/** Containers' links: whole or not at all, others' left alone, their rates held, their namespaces entered and left. */
export const attachmentFaults: readonly Fault[] = [
  {
    kind: "undo",
    name: "what was made for a container stays when its port cannot be made",
    file: "network/attachment/attachments.ts",
    find: "if (pair.isNew) await this.#undo(fragment);",
    put: "",
    noticedBy: { file: kernel, title: "what fails half way is undone" },
  },
  {
    kind: "mark",
    name: "a group of links is ended with somebody else's link in it",
    file: "network/attachment/graveyard.ts",
    find: "if (doomed.length === buried.length) await",
    put: "if (doomed.length > 0) await",
    noticedBy: {
      file: kernel,
      title: "a group that is somebody else's as well costs them nothing",
    },
  },
  {
    kind: "mark",
    name: "a link of the container's name is taken for one of ours",
    file: "network/attachment/pair.ts",
    find: 'if (host !== undefined && !isOurs(host, alias)) throw taken(hostLink, "on the host");',
    put: "",
    noticedBy: {
      file: kernel,
      title: "a name that is somebody else's is refused, and nothing of it touched",
    },
  },
  {
    kind: "lock",
    name: "what is asked of one container is done side by side",
    file: "network/attachment/attachments.ts",
    find: "return await turn.queue.run(task, signal);",
    put: "return await task();",
    noticedBy: { file: kernel, title: "eight at once on one and on eight sandboxes" },
  },
  {
    kind: "bound",
    name: "the way out of a container is not held to its rate",
    file: "network/attachment/rates.ts",
    find: "{ says, request: addRedirect(index, to.index) },",
    put: "",
    noticedBy: { file: rates, title: "the way out is held to its rate by a link of its own" },
  },
  {
    kind: "mark",
    name: "a machine's namespace answers for it",
    file: "network/netns-join/join.ts",
    find: "      addRedirect(link.index, index),\n",
    put: "",
    noticedBy: {
      file: join,
      title: "a machine is in a namespace what its link was, and nobody else answers for it",
    },
  },
  {
    kind: "access",
    name: "podnetd's own namespace is taken for a container's",
    file: "linux/namespace.ts",
    find: 'if (identity === ownIdentity()) throw unusable(path, "own");',
    put: "",
    noticedBy: {
      file: namespace,
      title: "what is no network namespace of somebody else is refused, and none of it waited for",
    },
  },
];
