import type { Fault } from "../fault.ts";

const inTest = (file: string, title: string): Fault["noticedBy"] => ({
  file: `test/unit/${file}.test.ts`,
  title,
});
const nodes = (title: string): Fault["noticedBy"] => inTest("overlay/kube/node-leases", title);
const lease = (title: string): Fault["noticedBy"] => inTest("overlay/kube/node-lease", title);
const client = (title: string): Fault["noticedBy"] => inTest("kubernetes/client", title);
const inCommon = "whatever Nodes say and in whatever order, no two have anything in common";

/** A host whose subnet Kubernetes gives: what it believes of Nodes, and writes into its own. */
export const overlayKubeFaults: readonly Fault[] = [
  {
    kind: "undo",
    name: "a leave forgets what is on its way to the Node",
    file: "overlay/kube/node-lease.ts",
    find: "this.#own === undefined && !this.#writer.isWriting;",
    put: "this.#own === undefined;",
    noticedBy: lease("a leave takes away what was on its way to the Node, too"),
  },
  {
    kind: "access",
    name: "a Node may have a podCIDR that pods of this host still have",
    file: "overlay/kube/node-lease.ts",
    find: "this.#apply(this.#nodes.keep(this.#own));",
    put: "this.#apply(this.#nodes.keep(undefined));",
    noticedBy: inTest(
      "overlay/kube/hostile",
      "a Node that is given this host's podCIDR while its pods still run is sent nothing of theirs",
    ),
  },
  {
    kind: "undo",
    name: "a host that has left takes flanneld's annotations away",
    file: "overlay/kube/node-writer.ts",
    find: "if (!leaving || hasLeft) return undefined;",
    put: "if (!leaving) return undefined;",
    noticedBy: inTest(
      "overlay/kube/node-writer",
      "a host that has left wants nothing of its Node any more",
    ),
  },
  {
    kind: "bound",
    name: "a busy API server is asked again sooner than it wants",
    file: "kubernetes/follow.ts",
    find: "askedMs = retryAfterOf(thrown) ?? 0;",
    put: "askedMs = 0 * (retryAfterOf(thrown) ?? 0);",
    noticedBy: inTest("kubernetes/busy", "a follower comes no sooner than it was asked to"),
  },
  {
    kind: "access",
    name: "a Node may have a podCIDR that another one has",
    file: "overlay/kube/node-leases.ts",
    find: "return [...ofNetworks, ...ofMacs].filter(",
    put: "return [...ofMacs].filter(",
    noticedBy: nodes(inCommon),
  },
  {
    kind: "access",
    name: "a Node may have the MAC of another",
    file: "overlay/kube/node-leases.ts",
    find: "return [...ofNetworks, ...ofMacs].filter(",
    put: "return [...ofNetworks].filter(",
    noticedBy: nodes(inCommon),
  },
  {
    kind: "access",
    name: "a larger network that another Node's lies in is not found",
    file: "overlay/kube/occupied.ts",
    find: "const holder = holders.get((first >> shift) << shift);",
    put: "const holder = holders.get(first);",
    noticedBy: nodes(inCommon),
  },
  {
    kind: "bound",
    name: "a Node may have the whole network",
    file: "overlay/kube/node-leases.ts",
    find: "if (lengthOf(subnet) < lengthOf(space.network) + 2)",
    put: "if (lengthOf(subnet) < lengthOf(space.network))",
    noticedBy: nodes(
      "a Node made before the others that claims the whole network changes no other's lease",
    ),
  },
  {
    kind: "bound",
    name: "an annotation may be as long as it likes",
    file: "overlay/kube/node-leases.ts",
    find: 'if (node.tooLong) return "one of its annotations is too long";',
    put: "",
    noticedBy: nodes(
      "a Node made after the others that claims a very long annotation changes no other's lease",
    ),
  },
  {
    kind: "lock",
    name: "a write is not bound to the version that it was decided for",
    file: "overlay/kube/patch.ts",
    find: "    resourceVersion,\n    uid,\n    annotations:",
    put: "    uid,\n    annotations:",
    noticedBy: lease("a write names the version and the uid of the Node that it was decided for"),
  },
  {
    kind: "record",
    name: "a Node with another podCIDR takes the former one from running pods",
    file: "overlay/kube/node-lease.ts",
    find: "if (this.#drain?.isDone === true) {",
    put: "if (this.#drain !== undefined) {",
    noticedBy: lease(
      "a Node that is gone, or has another podCIDR, takes nothing from pods that run",
    ),
    shows: "hang",
  },
  {
    kind: "release",
    name: "a host that leaves keeps its annotations",
    file: "overlay/kube/node-writer.ts",
    find: "annotations: isTheirs ? {} : noAnnotations,",
    put: "annotations: {},",
    noticedBy: lease("a host that leaves is drained first, and takes its annotations away"),
  },
  {
    kind: "bound",
    name: "a list's part may have any number of bytes",
    file: "kubernetes/request.ts",
    find: "if (length > most) throw new TooLarge();",
    put: "",
    noticedBy: client("parts that are too large are asked for in smaller ones"),
  },
  {
    kind: "access",
    name: "a server with another authority's certificate is believed",
    file: "kubernetes/request.ts",
    find: "rejectUnauthorized: !access.insecure,",
    put: "rejectUnauthorized: access.insecure,",
    noticedBy: client("a server of another authority is not spoken to, and is sent no token"),
  },
  {
    kind: "repair",
    name: "an expired version is asked for again without end",
    file: "kubernetes/follow.ts",
    find: "if (expired && this.#known !== undefined) {\n      this.#known = undefined;",
    put: "if (expired && this.#known !== undefined) {",
    noticedBy: inTest(
      "kubernetes/follow",
      "a follower whose server was restored from an older copy lists again",
    ),
  },
];
