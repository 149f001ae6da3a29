import type { ConnectRouter } from "@connectrpc/connect";
import { addService } from "../../api/service.ts";
import { type ApiServer, serveApi } from "../api/api-server.ts";
import type { ServiceParts } from "../api/context.ts";
import { healthPage } from "../api/http/health-pages.ts";
import { ImageService, RuntimeService } from "./gen/cri_pb.ts";
import { imageService } from "./image-service.ts";
import { runtimeService } from "./runtime-service.ts";

/** Kubernetes' runtime interface and nothing else, on a socket that root alone may connect to. */
export const serveCri = (
  path: string,
  parts: ServiceParts,
  refused: (reason: string) => void,
): Promise<ApiServer> =>
  serveApi({
    unix: { path, group: undefined, mode: 0o600, of: "CRI" },
    tcp: undefined,
    access: { viewer: [], operator: [], admin: [] },
    limits: parts.config.limits,
    refused,
    // Kubernetes gets its own labels and annotations back, whatever is in them.
    verbatim: true,
    routes: (router) => addCri(router, parts),
    metrics: () => Promise.resolve({ type: "text/plain", text: "" }),
    health: (page) => healthPage(parts, page),
  });

/** Adds both services of the interface. */
function addCri(router: ConnectRouter, parts: ServiceParts): void {
  addService(router, RuntimeService, runtimeService(parts));
  addService(router, ImageService, imageService(parts));
}
