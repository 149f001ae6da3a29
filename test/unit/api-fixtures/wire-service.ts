import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import { Health } from "../../../api/gen/grpc/health/v1/health_pb.ts";
import { PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addHealth, ServingStatus } from "../../../api/health.ts";
import { addReflection } from "../../../api/reflection.ts";
import { addService } from "../../../api/service.ts";
import { PodnetError } from "../../../core/errors.ts";

// These handlers play podnetd, which the daemon's own tests run for real: what is tested here is
// the wire.
const pods: Partial<ServiceImpl<typeof PodService>> = {
  create({ spec }) {
    if (spec?.name === "taken") {
      throw new PodnetError("NAME_IN_USE", 'Name "taken" is in use', {
        field: "name",
        hint: "Choose another",
        details: { holder: "abcdefghijkl" },
      });
    }
    return { pod: { id: "abcdefghijkl", name: spec?.name ?? "", state: PodState.RUNNING } };
  },
  async *createStream({ spec }) {
    yield { event: { case: "started", value: { step: "vm.boot", title: "Booting the VM" } } };
    yield { event: { case: "finished", value: { step: "vm.boot", durationMs: 1.5 } } };
    if (spec?.name === "late") throw new PodnetError("AGENT_TIMEOUT", "No answer", { step: "vm" });
    yield { event: { case: "pod", value: { name: spec?.name ?? "" } } };
  },
  get() {
    throw new PodnetError("POD_NOT_FOUND", "There is no such pod");
  },
  list() {
    throw new TypeError("a bug");
  },
  async *exec(requests) {
    for await (const { input } of requests) {
      if (input.case === "start") yield { output: { case: "started", value: { podId: "a" } } };
      if (input.case === "stdin") yield { output: { case: "stdout", value: input.value } };
      if (input.case === "closeStdin") yield { output: { case: "exit", value: { code: 3 } } };
    }
  },
  async *watch(_request, context) {
    yield { cursor: 1n, text: "first" };
    await new Promise((resolve) => {
      context.signal.addEventListener("abort", resolve, { once: true });
    });
  },
};

/** The pod service played, with real health and reflection beside it. */
export const routes =
  (serving = new ServingStatus()) =>
  (router: ConnectRouter): void => {
    addService(router, PodService, pods);
    serving.set(PodService.typeName, true);
    addHealth(router, serving);
    addReflection(router, [PodService, Health]);
  };
