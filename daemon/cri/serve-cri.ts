import { join } from "node:path";
import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { addService } from "../../api/service.ts";
import { type ApiServer, serveApi } from "../api/api-server.ts";
import type { ServiceParts } from "../api/context.ts";
import { healthPage } from "../api/http/health-pages.ts";
import { SandboxContainers } from "./containers/sandbox-containers.ts";
import { ImageService, RuntimeService } from "./gen/cri_pb.ts";
import { imageService } from "./image-service.ts";
import { runtimeService } from "./runtime-service.ts";
import { StreamingServer } from "./streaming/streaming-server.ts";

/** Kubernetes' runtime interface and nothing else, on a socket that root alone may connect to. */
export async function serveCri(
  path: string,
  parts: ServiceParts,
  refused: (reason: string) => void,
): Promise<ApiServer> {
  const { db, pods, records, host, log, config } = parts;
  const { stream } = config.cri;
  await using opened = new AsyncDisposableStack();
  const streams = opened.use(await StreamingServer.open(stream.host, stream.port));
  const containers = new SandboxContainers({
    db,
    pods,
    clock: host.clock,
    log,
    recordsDir: join(config.stateDir, "container-logs"),
    logRoot: config.cri.logPath,
    isOwn: (podId) => records.getUsable(podId)?.spec.sandbox !== undefined,
  });
  const server = await serveApi({
    unix: { path, group: undefined, mode: 0o600, of: "CRI" },
    tcp: undefined,
    access: { viewer: [], operator: [], admin: [] },
    limits: parts.config.limits,
    refused,
    // Kubernetes gets its own labels and annotations back, whatever is in them.
    verbatim: true,
    routes: (router) => addCri(router, parts, containers, streams),
    metrics: () => Promise.resolve({ type: "text/plain", text: "" }),
    health: (page) => healthPage(parts, page),
  });
  containers.recover();
  const held = opened.move();
  return {
    get connections() {
      return server.connections;
    },
    close: async (graceMs) => {
      await held.disposeAsync();
      await server.close(graceMs);
      await containers[Symbol.asyncDispose]();
    },
  };
}

/** Adds both services of the interface. */
function addCri(
  router: ConnectRouter,
  parts: ServiceParts,
  containers: SandboxContainers,
  streams: StreamingServer,
): void {
  const [runtime, images] = [runtimeService(parts, containers, streams), imageService(parts)];
  addService(router, RuntimeService, runtime);
  addService(router, ImageService, images);
  const version = async (...asked: Parameters<NonNullable<typeof runtime.version>>) => ({
    ...(await runtime.version?.(...asked)),
    runtimeApiVersion: "v1alpha2",
  });
  addService(router, earlier(RuntimeService), { ...runtime, version });
  addService(router, earlier(ImageService), images);
}

/**
 * A service by the name that kubelet knew before 1.23, `runtime.v1alpha2`: v1 began as its copy, so
 * that fields have the same numbers.
 */
export function earlier<S extends DescService>(service: S): S {
  const typeName = service.typeName.replace("runtime.v1.", "runtime.v1alpha2.");
  const parent = { ...service, typeName };
  return { ...parent, methods: service.methods.map((method) => ({ ...method, parent })) };
}
