import type { Fault } from "../fault.ts";

const calls = "test/unit/daemon/cri/containers.test.ts";
const refusals = "what a machine's container cannot be is refused by name, and nothing is made";

/** Containers of Kubernetes' sandboxes. */
export const sandboxContainerFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "a container's log may be anywhere on the host",
    file: "daemon/cri/containers/container-log.ts",
    find: "  throw outside(file, root);\n}",
    put: "  return file;\n}",
    noticedBy: { file: calls, title: refusals },
  },
  {
    kind: "bound",
    name: "a container gets copies of any file of the host",
    file: "daemon/cri/containers/guest-mounts.ts",
    find: "if (!within.some((directory) => isIn(source, directory)))",
    put: "if (within.length === 0)",
    noticedBy: { file: calls, title: refusals },
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
