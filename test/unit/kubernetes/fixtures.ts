import { KubeClient, type Limits } from "../../../kubernetes/client.ts";
import type { KubeApiServer } from "../../peers/kube-api/server.ts";

export const nodesPath = "/api/v1/nodes";

/** A signal that ends nothing. */
export const never = new AbortController().signal;

/** A client of the stand-in; `token`: what is in its token file when it is read. */
export const clientOf = (
  server: KubeApiServer,
  { token = () => "token-1", limits = {} }: { token?: () => string; limits?: Partial<Limits> } = {},
): KubeClient =>
  new KubeClient(
    {
      server: new URL(server.url),
      insecure: false,
      credentials: () => ({ token: token() }),
    },
    limits,
  );
