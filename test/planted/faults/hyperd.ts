import type { Fault } from "../fault.ts";

const pods = "test/unit/daemon/hyperd/pods.test.ts";
const ports = "test/unit/daemon/hyperd/ports.test.ts";
const containers = "test/unit/daemon/hyperd/containers.test.ts";
const several = "test/unit/daemon/hyperd/several.test.ts";
const completed = "test/unit/daemon/hyperd/completed.test.ts";
const services = "test/unit/daemon/hyperd/services.test.ts";
const access = "test/unit/daemon/hyperd/access.test.ts";

/** hyperd's API: who may do what by it, and what it answers. */
export const hyperdFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "hyperd's callers end pods of Kubernetes",
    file: "daemon/hyperd/known-pods.ts",
    find: "if (row !== undefined && row.spec.sandbox === undefined) return row;",
    put: "if (row !== undefined) return row;",
    noticedBy: { file: pods, title: "pods of Kubernetes are neither seen nor ended" },
  },
  {
    kind: "access",
    name: "calls of hyperd's API ask for no role",
    file: "daemon/hyperd/calls.ts",
    find: "demand(caller.peer, caller.role, route.role, `${route.method} ${route.path}`);",
    put: "void demand;",
    noticedBy: {
      file: access,
      title: "callers have the roles of podnet's API: a viewer lists, and an operator creates",
    },
  },
  {
    kind: "bound",
    name: "a field that hyperd's API does not know is passed over",
    file: "daemon/hyperd/requests/go-json.ts",
    find: "z.strictObject(shape)",
    put: "z.object(shape)",
    noticedBy: {
      file: pods,
      title: "what podnet cannot honour in a pod is refused with a sentence, and leaves nothing",
    },
  },
  {
    kind: "bound",
    name: "a parameter that hyperd's API does not know is passed over",
    file: "daemon/hyperd/calls.ts",
    find: "refuseUnread({ query }, route);",
    put: "void refuseUnread;",
    noticedBy: {
      file: completed,
      title: "a parameter that would be passed over is refused, and names are read in any case",
    },
  },
  {
    kind: "bound",
    name: "a message's field by an unknown number is passed over",
    file: "daemon/hyperd/grpc/unknown-fields.ts",
    find: "if (first !== undefined) return { number: first.no, path };",
    put: "if (first?.no === 0) return { number: first.no, path };",
    noticedBy: {
      file: "test/unit/daemon/hyperd/numbers.test.ts",
      title: "a field by an unknown number is refused in any message, and changes nothing",
    },
  },
  {
    kind: "access",
    name: "a link in the place of a directory leads a copy elsewhere",
    file: "daemon/cri/containers/guest-mounts.ts",
    find: "if (opened !== source) throw",
    put: 'if (opened === "") throw',
    noticedBy: {
      file: "test/unit/daemon/cri/host-copies.test.ts",
      title: "a directory that becomes a link while it is copied leads to no other file",
    },
  },
  {
    kind: "access",
    name: "operators relabel pods out of policies by hyperd's API",
    file: "daemon/hyperd/pod-calls.ts",
    find: 'refuseProtectedLabels(Object.keys(change.set), context.values, "labels");',
    put: "void context;",
    noticedBy: {
      file: access,
      title: "an operator can neither take nor give a label that policies rely on",
    },
  },
  {
    kind: "access",
    name: "a pod's annotation gives labels that policies rely on",
    file: "daemon/containers/cni/attachment-request.ts",
    find: "const key = protectedKey(annotated.map(([each]) => each));",
    put: "const key = protectedKey([]);",
    noticedBy: {
      file: "test/unit/daemon/containers/plan.test.ts",
      title:
        "a pod's annotation gives no label that policies rely on; the network's configuration does",
    },
  },
  {
    kind: "access",
    name: "white lists open what a policy closes",
    file: "daemon/hyperd/requests/white-lists.ts",
    find: 'return { ingress: { default: "allow", rules } };',
    put: 'return { ingress: { default: "allow", rules: [{ ...rules[0], name: `${prefix}x`, action: "allow", cidrs: [...internal, ...external] }, ...rules] } };',
    noticedBy: { file: completed, title: "white lists open nothing that a policy closes" },
  },
  {
    kind: "record",
    name: "rules of white lists overwrite those of an administrator",
    file: "daemon/hyperd/port-calls.ts",
    find: "if (lists === undefined || !areOfWhiteLists(spec.policy)) return;",
    put: "if (lists === undefined) return;",
    noticedBy: {
      file: completed,
      title:
        "white lists are rules of the pod, which follow its mappings but not over an administrator",
    },
  },
  {
    kind: "bound",
    name: "a body for hyperd's API is read however long it is",
    file: "daemon/hyperd/calls.ts",
    find: "if (length > mostBytes) throw tooLarge();",
    put: "void tooLarge;",
    noticedBy: { file: pods, title: "a body that is no pod is refused, however it is sent" },
  },
  {
    kind: "record",
    name: "a mapping that is not there is deleted in silence",
    file: "daemon/hyperd/port-calls.ts",
    find: "if (missing >= 0) {",
    put: "if (missing > 99) {",
    noticedBy: {
      file: ports,
      title: "a deletion names mappings that are there, or deletes none",
    },
  },
  {
    kind: "access",
    name: "a program of one container is another's",
    file: "daemon/hyperd/known-execs.ts",
    find: "if (found?.container === container.id) return found;",
    put: "if (found !== undefined) return found;",
    noticedBy: {
      file: several,
      title: "programs belong to their container, and names of several containers choose none",
    },
  },
  {
    kind: "access",
    name: "hyperd's face looks after the containers of Kubernetes",
    file: "daemon/hyperd/containers/inner-containers.ts",
    find: "return row !== undefined && row.spec.sandbox === undefined;",
    put: "return row !== undefined;",
    noticedBy: {
      file: several,
      title:
        "containers are known after a start of podnetd, and those of Kubernetes are not touched",
    },
  },
  {
    kind: "record",
    name: "hyperd's create starts the container as well",
    file: "daemon/pods/plan/steps.ts",
    find: "(fresh && spec.process?.deferred === true)",
    put: "(fresh && spec.process === undefined)",
    noticedBy: {
      file: containers,
      title: "a create boots the machine, and the start begins the container",
    },
  },
  {
    kind: "release",
    name: "services of hyperd's pods outlive them",
    file: "daemon/hyperd/gone-pods.ts",
    find: 'if (kind === "deleted") await sweep();',
    put: "void kind;",
    noticedBy: {
      file: services,
      title: "services of a pod are podnet's: listed, added, updated, deleted, and gone with it",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "a pod whose container cannot be started runs on without it",
    file: "daemon/pods/lifecycle/starts.ts",
    find: "live.ended.abort(thrown);\n      throw thrown;",
    put: "throw thrown;",
    noticedBy: {
      file: containers,
      title: "a container that cannot be started fails the start, and ends its pod",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "a program outlives the caller whose connection it has",
    file: "daemon/api/http/upgrade.ts",
    find: "if (isClosedThere(socket)) socket.destroy();",
    put: "void isClosedThere;",
    noticedBy: {
      file: containers,
      title: "a caller that goes takes its program with it, and no other",
    },
    slow: true,
  },
];
