import { connect } from "node:net";
import { type Client, createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { ImageService, RuntimeService } from "../../../daemon/cri/gen/cri_pb.ts";

/** Both services of a runtime, until disposed. */
export interface CriClients extends Disposable {
  readonly runtime: Client<typeof RuntimeService>;
  readonly images: Client<typeof ImageService>;
}

const baseUrl = "http://localhost";

/** What kubelet speaks, on a runtime's unix socket; `services` may have other names. */
export function openCri(
  socket: string,
  services: { readonly runtime: typeof RuntimeService; readonly images: typeof ImageService } = {
    runtime: RuntimeService,
    images: ImageService,
  },
): CriClients {
  const sessionManager = new Http2SessionManager(
    baseUrl,
    {},
    { createConnection: () => connect(socket) },
  );
  const transport: Transport = createGrpcTransport({
    baseUrl,
    defaultTimeoutMs: 60_000,
    sessionManager,
  });
  return {
    runtime: createClient(services.runtime, transport),
    images: createClient(services.images, transport),
    [Symbol.dispose]: () => sessionManager.abort(),
  };
}

/** The runtime alone, of a program whose end closes the connection. */
export const connectCri = (socket: string): Client<typeof RuntimeService> =>
  openCri(socket).runtime;
