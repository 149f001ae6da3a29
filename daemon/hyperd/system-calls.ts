import { hostname, release, totalmem, type } from "node:os";
import { version } from "../../api/version.ts";
import type { ServiceParts } from "../api/context.ts";
import { env, plain } from "./answers.ts";
import { type KnownPods } from "./known-pods.ts";
import type { Route } from "./routes.ts";

/** The hyperd whose API this is. */
export const hyperdVersion = "1.1.0";

/** What the host is, and whether podnetd answers. */
export const systemCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  { method: "GET", path: "/_ping", parameters: [], role: "viewer", answer: () => plain("OK") },
  {
    method: "GET",
    path: "/version",
    parameters: [],
    role: "viewer",
    answer: () => env({ ID: nodeId, Version: hyperdVersion }),
  },
  {
    method: "GET",
    path: "/info",
    parameters: [],
    role: "viewer",
    answer: () => {
      const info = systemInfo(parts, known);
      return env({
        ID: info.ID,
        Containers: info.containers,
        Images: info.images,
        Pods: info.pods,
        Driver: info.driver,
        DriverStatus: [],
        DockerRootDir: info.dockerRootDir,
        IndexServerAddress: info.indexServerAddress,
        ExecutionDriver: info.executionDriver,
        MemTotal: info.memTotal,
        "Operating System": info.operatingSystem,
        Name: info.name,
      });
    },
  },
];

const nodeId = `podnet-${version}`;

export function systemInfo({ config, host, images }: ServiceParts, known: KnownPods) {
  const pods = known.list();
  return {
    ID: nodeId,
    containers: known.containers(pods).length,
    images: images.list().length,
    pods: pods.length,
    driver: "squashfs",
    dockerRootDir: config.images.directory,
    indexServerAddress: config.images.registries[0] ?? "",
    executionDriver: host.driver.name ?? "",
    memTotal: totalmem(),
    operatingSystem: `${type()} ${release()}`,
    name: hostname(),
  };
}
