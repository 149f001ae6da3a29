import { normalize } from "node:path";
import type { ServiceImpl } from "@connectrpc/connect";
import { systemClock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { architectureOf } from "../../hypervisor/architecture.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { limitsOf } from "./containers/container-limits.ts";
import { logFile } from "./containers/container-log.ts";
import { planContainer } from "./containers/container-spec.ts";
import { execSync } from "./containers/exec-sync.ts";
import { guestMounts, messageFileOf } from "./containers/guest-mounts.ts";
import type { ContainerRow } from "./containers/rows.ts";
import type { SandboxContainers } from "./containers/sandbox-containers.ts";
import {
  containerStats,
  containerStatus,
  containerView,
  matchesContainer,
} from "./containers/views.ts";
import type { RuntimeService } from "./gen/cri_pb.ts";
import { isReady, type Sandboxes } from "./sandboxes.ts";

/** What containers use; one that does not run uses nothing. */
export async function statsOf(rows: readonly ContainerRow[], containers: SandboxContainers) {
  const usage = await containers.usage(rows.filter(({ state }) => state === "running"));
  return rows.map((row) => containerStats(row, usage.get(row.id), systemClock.now()));
}

type Calls = Partial<ServiceImpl<typeof RuntimeService>>;

const cannot = (what: string) => (): never => {
  throw new PodnetError("UNSUPPORTED", `podnet cannot ${what} yet`, {
    hint: "See docs/reference/cri.md for the calls that work",
  });
};

/** Timers of Node end at once beyond this. */
const longestMs = 2 ** 31 - 1;
/** Of a negative number none. */
const milliseconds = (seconds: bigint): number =>
  Math.max(0, Math.min(Number(seconds) * 1000, longestMs));

/** `kubectl debug` shares the processes of a container that runs. Throws `WRONG_STATE`. */
function requireTarget(row: ContainerRow | undefined, sandbox: string, target: string): void {
  if (row?.podId === sandbox && row.state === "running") return;
  throw new PodnetError("WRONG_STATE", `Container "${printable(target)}" does not run here`, {
    field: "config.linux.security_context.namespace_options.target_id",
    hint: "Name a container of the same sandbox that runs",
  });
}

/** The annotation that has the path of the termination log. */
const terminationPath = "io.kubernetes.container.terminationMessagePath";
const usualTermination = "/dev/termination-log";

/** Calls about the containers of sandboxes. */
export function containerCalls(
  parts: ServiceParts,
  sandboxes: Sandboxes,
  containers: SandboxContainers,
): Calls {
  const { images, config } = parts;
  return {
    async createContainer({ podSandboxId, config: asked }, context) {
      const sandbox = sandboxes.find(podSandboxId);
      note(parts, context, `create container in sandbox ${printable(podSandboxId)}`);
      if (asked === undefined)
        throw new PodnetError("INVALID_ARGUMENT", "The container has no configuration", {
          field: "config",
          hint: "Give config with metadata and image",
        });
      if (!isReady(sandbox))
        throw new PodnetError("WRONG_STATE", `Sandbox ${sandbox.id} is not ready`, {
          field: "pod_sandbox_id",
          hint: "Run another sandbox",
        });
      const image = images.findImage(asked.image?.image ?? "");
      if (image.type === "disk")
        throw new PodnetError("UNSUPPORTED", "The image is a disk with a system of its own", {
          field: "config.image",
          hint: "Use an image of a container; podnet create --image boots disks",
        });
      const target = asked.linux?.securityContext?.namespaceOptions?.targetId ?? "";
      if (target !== "") requireTarget(containers.search(target), sandbox.id, target);
      const { logPath, mountPaths } = config.cri;
      const log = logFile(sandbox.spec.sandbox.logDirectory, asked.logPath, logPath);
      const plan = planContainer(asked, image, log, architectureOf(sandbox.plan.vm));
      const last = normalize(asked.annotations[terminationPath] ?? usualTermination);
      const mounts = guestMounts(asked.mounts, mountPaths, [last], sandbox.plan.vm.shares);
      const messageFile = messageFileOf(asked.mounts, last, mountPaths);
      const said =
        messageFile === undefined
          ? {}
          : { messageFile, start: { ...plan.start, messagePath: last } };
      return {
        containerId: (await containers.create(sandbox.id, { ...plan, ...said }, image, mounts)).id,
      };
    },

    async startContainer({ containerId }, context) {
      note(parts, context, `start container ${printable(containerId)}`);
      await containers.start(containerId);
      return {};
    },

    async stopContainer({ containerId, timeout }, context) {
      note(parts, context, `stop container ${printable(containerId)}`);
      await containers.stop(containerId, milliseconds(timeout), context.signal);
      return {};
    },

    async removeContainer({ containerId }, context) {
      note(parts, context, `remove container ${printable(containerId)}`);
      await containers.remove(containerId);
      return {};
    },

    listContainers: ({ filter }) => ({
      containers: containers
        .list()
        .filter((row) => row.state !== "creating" && matchesContainer(row, filter))
        .map(containerView),
    }),

    containerStatus: ({ containerId }) => ({
      status: containerStatus(containers.find(containerId)),
      info: {},
    }),

    async execSync({ containerId, cmd, timeout }, context) {
      note(parts, context, `run a program in container ${printable(containerId)}`);
      const { row, live } = containers.running(containerId);
      return await execSync(live, row, cmd, milliseconds(timeout), context.signal);
    },

    reopenContainerLog({ containerId }, context) {
      note(parts, context, `reopen log of container ${printable(containerId)}`);
      containers.reopenLog(containerId);
      return {};
    },

    async containerStats({ containerId }) {
      const [stats] = await statsOf([containers.find(containerId)], containers);
      return stats === undefined ? {} : { stats };
    },

    listContainerStats: async ({ filter }) => ({
      stats: await statsOf(
        containers.list().filter((row) => row.state === "running" && matchesContainer(row, filter)),
        containers,
      ),
    }),

    async updateContainerResources({ containerId, linux, windows, annotations }, context) {
      note(parts, context, `limit container ${printable(containerId)}`);
      if (windows !== undefined || Object.keys(annotations).length > 0)
        throw new PodnetError("UNSUPPORTED", "podnet changes resources of Linux alone", {
          field: windows === undefined ? "annotations" : "windows",
          hint: "Give the new limits in linux",
        });
      await containers.limit(containerId, limitsOf(linux, "linux"));
      return {};
    },

    checkpointContainer: cannot("checkpoint a container"),
  };
}
