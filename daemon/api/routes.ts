import type { ConnectRouter } from "@connectrpc/connect";
import { CniService } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { ImageService } from "../../api/gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PolicyService } from "../../api/gen/podnet/v1/policy_service_pb.ts";
import { ServiceService } from "../../api/gen/podnet/v1/service_service_pb.ts";
import { addHealth, ServingStatus } from "../../api/health.ts";
import { Health } from "../../api/gen/grpc/health/v1/health_pb.ts";
import { addReflection } from "../../api/reflection.ts";
import { addService } from "../../api/service.ts";
import { cniService } from "./cni-service.ts";
import type { ServiceParts } from "./context.ts";
import { imageService } from "./images/image-service.ts";
import { networkService } from "./network-service.ts";
import { nodeService } from "./node-service.ts";
import { overlayService } from "./overlay-service.ts";
import { podService } from "./pod-service.ts";
import { policyService } from "./policy-service.ts";
import { serviceService } from "./service-service.ts";

const services = [
  PodService,
  NetworkService,
  PolicyService,
  ServiceService,
  OverlayService,
  CniService,
  ImageService,
  NodeService,
];

/** Everything the API's socket answers. */
export function addRoutes(router: ConnectRouter, parts: ServiceParts): void {
  addService(router, PodService, podService(parts));
  addService(router, NetworkService, networkService(parts));
  addService(router, PolicyService, policyService(parts));
  addService(router, ServiceService, serviceService(parts));
  addService(router, OverlayService, overlayService(parts));
  addService(router, CniService, cniService(parts));
  addService(router, ImageService, imageService(parts));
  addService(router, NodeService, nodeService(parts));
  const serving = new ServingStatus();
  for (const name of ["", ...services.map(({ typeName }) => typeName)]) serving.set(name, true);
  addHealth(router, serving);
  addReflection(router, [...services, Health]);
}
