import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import { Health } from "../../../api/gen/grpc/health/v1/health_pb.ts";
import { CniService } from "../../../api/gen/podnet/v1/cni_service_pb.ts";
import { NetworkService } from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../../api/gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "../../../api/gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addHealth, ServingStatus } from "../../../api/health.ts";
import { addReflection } from "../../../api/reflection.ts";
import { addService } from "../../../api/service.ts";
import type { AccessConfig } from "../../../daemon/config/access.ts";
import type { TcpConfig } from "../../../daemon/config/config.ts";
import type { ApiLimits } from "../../../daemon/config/limits.ts";
import { type ApiServer, serveApi } from "../../../daemon/api/api-server.ts";
import { rootOnly, usualLimits } from "./limits.ts";

export interface Serving extends AsyncDisposable {
  readonly socket: string;
  readonly server: ApiServer;
  /** How often each reason was given for refusing or cutting. */
  readonly refused: ReadonlyMap<string, number>;
}

export interface ServingOptions {
  readonly tcp?: TcpConfig;
  readonly access?: Partial<AccessConfig>;
  readonly limits?: Partial<ApiLimits>;
  readonly pods?: Partial<ServiceImpl<typeof PodService>>;
  readonly routes?: (router: ConnectRouter) => void;
}

/**
 * podnetd's server over services whose every method answers with nothing, but for those of `pods`.
 */
export async function openServing(options: ServingOptions = {}): Promise<Serving> {
  const socket = join(mkdtempSync(join(tmpdir(), "podnet-serving-")), "api.sock");
  const refused = new Map<string, number>();
  const server = await serveApi({
    unix: { path: socket, group: undefined },
    tcp: options.tcp,
    access: { ...rootOnly, ...options.access },
    limits: { ...usualLimits, ...options.limits },
    refused: (reason) => refused.set(reason, (refused.get(reason) ?? 0) + 1),
    routes(router) {
      addService(router, PodService, { ...emptyOf(PodService), ...options.pods });
      addService(router, NetworkService, emptyOf(NetworkService));
      addService(router, OverlayService, emptyOf(OverlayService));
      addService(router, CniService, emptyOf(CniService));
      addService(router, NodeService, emptyOf(NodeService));
      const serving = new ServingStatus();
      serving.set("", true);
      addHealth(router, serving);
      addReflection(router, [
        PodService,
        NetworkService,
        OverlayService,
        CniService,
        NodeService,
        Health,
      ]);
      options.routes?.(router);
    },
    metrics: () => Promise.resolve({ type: "text/plain", text: "podnet_up 1\n" }),
    health: (page) => Promise.resolve({ ok: page === "healthz", text: `${page}\n` }),
  });
  return { socket, server, refused, [Symbol.asyncDispose]: () => server.close(100) };
}

/** Every method of a service, answering with an empty message or an empty stream. */
function emptyOf<S extends DescService>(service: S): Partial<ServiceImpl<S>> {
  const methods = service.methods.map((method) => {
    const unary = method.methodKind === "unary";
    return [method.localName, unary ? () => ({}) : async function* nothing() {}];
  });
  return Object.fromEntries(methods) as Partial<ServiceImpl<S>>;
}
