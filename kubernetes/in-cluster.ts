import path from "node:path";
import { PodnetError } from "../core/errors.ts";
import { type Access, parseServer, readSource, readToken } from "./access.ts";

/** Where Kubernetes puts a pod's token and the authority of the API server. */
const usualDirectory = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * The access that a pod has: the service account's token, and the address in the environment.
 * Throws `CONFIG_INVALID` outside of a pod.
 */
export function inClusterAccess(
  env: Readonly<Record<string, string | undefined>>,
  directory = usualDirectory,
): Access {
  const { KUBERNETES_SERVICE_HOST: host = "", KUBERNETES_SERVICE_PORT: port = "" } = env;
  const field = "overlay.kubernetes.kubeconfig";
  if (host === "" || port === "")
    throw new PodnetError("CONFIG_INVALID", "podnetd does not run in a pod of Kubernetes", {
      field,
      hint: "Name a kubeconfig file; in a pod, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are set",
    });
  const token = { path: path.join(directory, "token") };
  const ca = { path: path.join(directory, "ca.crt") };
  return {
    server: parseServer(`https://${host.includes(":") ? `[${host}]` : host}:${port}`, field),
    insecure: false,
    credentials: () => ({
      ca: readSource(ca, "certificate of the API server's authority") as string,
      token: readToken(token) as string,
    }),
  };
}
