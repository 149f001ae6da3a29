import type { ServiceImpl } from "@connectrpc/connect";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ContainerRequest, RuntimeService } from "./gen/cri_pb.ts";

type Calls = Partial<ServiceImpl<typeof RuntimeService>>;

const cannot = (what: string) => (): never => {
  throw new PodnetError("UNSUPPORTED", `podnet cannot ${what} yet`, {
    hint: "See docs/reference/cri.md for the calls that work",
  });
};

const noContainer = ({ containerId }: ContainerRequest): never => {
  throw new PodnetError("POD_NOT_FOUND", `There is no container "${printable(containerId)}"`, {
    hint: "podnet runs no containers in its sandboxes yet",
  });
};

/**
 * Calls about containers: sandboxes have none. Lists are empty, the end of an absent one has come,
 * and what would need one fails.
 */
export const containerCalls: Calls = {
  createContainer: cannot("run containers in a sandbox"),
  startContainer: noContainer,
  stopContainer: () => ({}),
  removeContainer: () => ({}),
  listContainers: () => ({}),
  containerStatus: noContainer,
  updateContainerResources: noContainer,
  reopenContainerLog: noContainer,
  execSync: noContainer,
  exec: noContainer,
  attach: noContainer,
  containerStats: noContainer,
  listContainerStats: () => ({}),
  checkpointContainer: noContainer,
  getContainerEvents: cannot("report events of containers"),
  portForward: cannot("forward ports into a sandbox"),
  updatePodSandboxResources: cannot("change the processors and memory of a sandbox"),
  listMetricDescriptors: cannot("describe metrics by this interface; GET /metrics has them"),
  listPodSandboxMetrics: cannot("list metrics by this interface; GET /metrics has them"),
};
