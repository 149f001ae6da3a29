import { create } from "@bufbuild/protobuf";
import * as wire from "../../api/gen/podnet/v1/pod_pb.ts";
import type { RemotePod } from "../../overlay/pods/remote-pods.ts";
import { podStates, time } from "./views.ts";

/** A pod of another host as the API shows it: what that host has published of it. */
export const remotePodView = (pod: RemotePod): wire.Pod =>
  create(wire.PodSchema, {
    id: pod.id,
    name: pod.name,
    labels: { ...pod.labels },
    state: podStates[pod.state],
    createdAt: time(pod.createdMs),
    interfaces: pod.interfaces.map(({ network, name, addresses }) => ({
      network: network ?? "",
      guestName: name,
      addresses: [...addresses],
    })),
    host: pod.hostname,
  });
