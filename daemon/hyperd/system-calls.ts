import { hostname, release, totalmem, type } from "node:os";
import { version } from "../../api/version.ts";
import type { ServiceParts } from "../api/context.ts";
import { env, plain } from "./answers.ts";
import type { KnownPods } from "./known-pods.ts";
import type { Route } from "./routes.ts";

/** The hyperd whose API this is. */
const hyperdVersion = "1.1.0";

/** What the host is, and whether podnetd answers. */
export const systemCalls = (
  { config, host, images }: ServiceParts,
  known: KnownPods,
): readonly Route[] => [
  { method: "GET", path: "/_ping", role: "viewer", answer: () => plain("OK") },
  {
    method: "GET",
    path: "/version",
    role: "viewer",
    answer: () => env({ ID: `podnet-${version}`, Version: hyperdVersion }),
  },
  {
    method: "GET",
    path: "/info",
    role: "viewer",
    answer: () => {
      const pods = known.list();
      return env({
        ID: `podnet-${version}`,
        Containers: known.containers(pods).length,
        Images: images.list().length,
        Pods: pods.length,
        Driver: "squashfs",
        DriverStatus: [],
        DockerRootDir: config.images.directory,
        IndexServerAddress: config.images.registries[0],
        ExecutionDriver: host.driver.name,
        MemTotal: totalmem(),
        "Operating System": `${type()} ${release()}`,
        Name: hostname(),
      });
    },
  },
];
