import { type ApiServer, serveApi } from "../api/api-server.ts";
import type { ServiceParts } from "../api/context.ts";
import { healthPage } from "../api/http/health-pages.ts";
import { KnownPods } from "./known-pods.ts";
import { listCalls } from "./list-calls.ts";
import { podCalls } from "./pod-calls.ts";
import { portCalls } from "./port-calls.ts";
import { refusedCalls } from "./refused-calls.ts";
import { restHandler } from "./rest.ts";
import type { Route } from "./routes.ts";
import { systemCalls } from "./system-calls.ts";

/** hyperd's REST API and nothing else, on a socket whose callers have the roles of podnet's API. */
export const serveHyperd = (
  path: string,
  parts: ServiceParts,
  refused: (reason: string) => void,
): Promise<ApiServer> => {
  const { config } = parts;
  const { limits } = config;
  return serveApi({
    unix: { path, group: config.socketGroup, of: "hyperd" },
    tcp: undefined,
    access: config.access,
    limits,
    refused,
    routes: () => {},
    plain: restHandler({ routes: hyperdRoutes(parts), limits, refused }),
    metrics: () => Promise.resolve({ type: "text/plain", text: "" }),
    health: (page) => healthPage(parts, page),
  });
};

/** All that is answered. */
function hyperdRoutes(parts: ServiceParts): readonly Route[] {
  const known = new KnownPods(parts.pods);
  return [
    ...systemCalls(parts, known),
    ...listCalls(parts, known),
    ...podCalls(parts, known),
    ...portCalls(parts, known),
    ...refusedCalls,
  ];
}
