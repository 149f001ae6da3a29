import type { DescMethod } from "@bufbuild/protobuf";
import type { Role } from "../../../api/roles.ts";
import { PublicAPI } from "../gen/hyperd_pb.ts";

/** What shows neither arguments nor output of programs, which may hold secrets. */
const viewed: ReadonlySet<string> = new Set(
  (
    [
      "ping",
      "version",
      "info",
      "podList",
      "podInfo",
      "podStats",
      "vMList",
      "containerList",
      "containerInfo",
      "portMappingList",
      "serviceList",
      "imageList",
    ] as const
  ).map((name) => PublicAPI.method[name].name),
);

/** The least role that may call a method: the same as for its like in REST. */
export const publicRoleFor = ({ name }: DescMethod): Role =>
  viewed.has(name) ? "viewer" : "operator";
