import type { Fault } from "../fault.ts";

const calls = "test/unit/daemon/cri/containers.test.ts";
const refused = "test/unit/daemon/cri/container-spec.test.ts";
const refusals = "what a machine's container cannot be is refused by name, and nothing is made";
const astray = "a sandbox whose log directory is not where logs are has no containers with a log";

/** Containers of Kubernetes' sandboxes. */
export const sandboxContainerFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "a container's log may be anywhere on the host",
    file: "daemon/cri/containers/container-log.ts",
    find: "if (!isAbsolute(directory) || !isWithin(file, normalize(root))) throw",
    put: "if (directory === file) throw",
    noticedBy: { file: calls, title: astray },
  },
  {
    kind: "bound",
    name: "a container's log may be another sandbox's",
    file: "daemon/cri/containers/container-log.ts",
    find: "if (isWithin(file, normalize(directory))) return file;",
    put: "if (file !== directory) return file;",
    noticedBy: { file: refused, title: refusals },
  },
  {
    kind: "bound",
    name: "a container gets copies of any file of the host",
    file: "daemon/cri/containers/guest-mounts.ts",
    find: "if (within.some((directory) => isIn(source, directory))) return source;",
    put: "if (within.length > 0) return source;",
    noticedBy: { file: refused, title: refusals },
  },
  {
    kind: "undo",
    name: "what a failed create made of a container stays",
    file: "daemon/cri/containers/sandbox-containers.ts",
    find: "await this.#takeAway(row).catch(() => void this.#removeLater(id));",
    put: "",
    noticedBy: {
      file: calls,
      title: "a create that fails at container create leaves neither row nor disk",
    },
  },
];
