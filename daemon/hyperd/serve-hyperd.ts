import { addService } from "../../api/service.ts";
import { type ApiServer, serveApi } from "../api/api-server.ts";
import type { ServiceParts } from "../api/context.ts";
import { healthPage } from "../api/http/health-pages.ts";
import { attachCalls } from "./attach-calls.ts";
import { containerCalls } from "./container-calls.ts";
import { innerCalls } from "./containers/inner-calls.ts";
import { InnerContainers } from "./containers/inner-containers.ts";
import { execCalls } from "./exec-calls.ts";
import { sweepAfterPods } from "./gone-pods.ts";
import { PublicAPI } from "./gen/hyperd_pb.ts";
import { publicApi } from "./grpc/public-api.ts";
import { publicRoleFor } from "./grpc/roles.ts";
import { hijackHandler } from "./hijack.ts";
import { imageCalls } from "./image-calls.ts";
import { KnownExecs } from "./known-execs.ts";
import { KnownPods } from "./known-pods.ts";
import { listCalls } from "./list-calls.ts";
import { logCalls } from "./log-calls.ts";
import { podCalls } from "./pod-calls.ts";
import { portCalls } from "./port-calls.ts";
import { refusedCalls } from "./refused-calls.ts";
import { restHandler } from "./rest.ts";
import type { Route, StreamRoute } from "./routes.ts";
import { PodServices } from "./services/pod-services.ts";
import { serviceCalls } from "./services/service-calls.ts";
import { statsCalls } from "./stats-calls.ts";
import { systemCalls } from "./system-calls.ts";

/**
 * hyperd's REST and gRPC APIs and nothing else, on a socket whose callers have the roles of
 * podnet's API.
 */
export async function serveHyperd(
  path: string,
  parts: ServiceParts,
  refused: (reason: string) => void,
): Promise<ApiServer> {
  const { config } = parts;
  const { limits } = config;
  const inner = new InnerContainers(parts);
  const known = new KnownPods(parts, inner);
  const execs = new KnownExecs();
  const services = new PodServices(parts);
  const rest = { ...hyperdRoutes(parts, known, execs, services, inner), limits, refused };
  const server = await serveApi({
    unix: { path, group: config.socketGroup, of: "hyperd" },
    tcp: undefined,
    access: config.access,
    limits,
    refused,
    // Callers get their own labels back, whatever is in them.
    verbatim: true,
    routes: (router) =>
      addService(router, PublicAPI, publicApi(parts, known, execs, services, inner)),
    roleFor: publicRoleFor,
    plain: restHandler(rest),
    upgrade: hijackHandler(rest),
    metrics: () => Promise.resolve({ type: "text/plain", text: "" }),
    health: (page) => healthPage(parts, page),
  });
  inner.start();
  const ended = new AbortController();
  const sweep = async (): Promise<void> => {
    inner.sweep();
    await services.sweep();
  };
  sweepAfterPods(parts, sweep, ended.signal);
  return {
    get connections() {
      return server.connections;
    },
    close: async (graceMs) => {
      ended.abort();
      await server.close(graceMs);
      await inner[Symbol.asyncDispose]();
    },
  };
}

/** All that is answered by REST. */
export function hyperdRoutes(
  parts: ServiceParts,
  known: KnownPods,
  execs: KnownExecs,
  services: PodServices,
  inner: InnerContainers,
): { readonly routes: readonly Route[]; readonly streams: readonly StreamRoute[] } {
  const exec = execCalls(parts, known, execs);
  return {
    routes: [
      ...systemCalls(parts, known),
      ...listCalls(known),
      ...podCalls(parts, known, services, inner),
      ...serviceCalls(known, services),
      ...portCalls(parts, known),
      ...containerCalls(parts, known, execs),
      ...innerCalls(parts, known, inner),
      ...exec.routes,
      ...logCalls(parts, known),
      ...imageCalls(parts),
      ...statsCalls(parts, known),
      ...refusedCalls,
    ],
    streams: [...exec.streams, ...attachCalls(parts, known)],
  };
}
