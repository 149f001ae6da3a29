import { connect } from "node:net";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { RuntimeService } from "./gen/cri_pb.ts";

/** What kubelet speaks, on a runtime's unix socket. */
export const connectCri = (socket: string): Client<typeof RuntimeService> =>
  createClient(
    RuntimeService,
    createGrpcTransport({
      baseUrl: "http://localhost",
      defaultTimeoutMs: 60_000,
      nodeOptions: { createConnection: () => connect(socket) },
    }),
  );
