import { readFileSync } from "node:fs";
import test from "ava";
import { Health } from "../../api/gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../api/gen/grpc/reflection/v1/reflection_pb.ts";
import { CniService } from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { ImageService } from "../../api/gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PolicyService } from "../../api/gen/podnet/v1/policy_service_pb.ts";
import { ServiceService } from "../../api/gen/podnet/v1/service_service_pb.ts";

const page = readFileSync(new URL("../../docs/reference/api.md", import.meta.url), "utf8");

test("docs/reference/api.md lists every call of every service, and no other", (t) => {
  const services = [
    PodService,
    NetworkService,
    PolicyService,
    ServiceService,
    OverlayService,
    CniService,
    ImageService,
    NodeService,
    Health,
    ServerReflection,
  ];
  const rows = [...page.matchAll(/^\| `((?:podnet|grpc)\.\S+)` \| (.*) \|$/gm)].map(
    ([, service = "", calls = ""]) => [service, calls.split(", ").toSorted()] as const,
  );
  t.deepEqual(
    new Map(rows),
    new Map(
      services.map((each) => [each.typeName, each.methods.map(({ name }) => name).toSorted()]),
    ),
  );
});
