import type * as z from "zod";
import type { configSchema } from "./schema.ts";

/** Limits of API requests by one caller, or by all: times in milliseconds. */
export interface ApiLimits {
  readonly connections: number;
  readonly connectionsPerCaller: number;
  readonly connectionsPerS: number;
  readonly handshakes: number;
  readonly requestsPerCaller: number;
  readonly createsPerCaller: number;
  readonly capturesPerCaller: number;
  readonly requestsPerS: number;
  readonly requestMs: number;
  readonly stallMs: number;
  readonly idleMs: number;
}

/** The limits as the server counts them. */
export const limitsConfig = (limits: z.infer<typeof configSchema>["limits"]): ApiLimits => ({
  connections: limits.connections,
  connectionsPerCaller: limits.connections_per_caller,
  connectionsPerS: limits.connections_per_s,
  handshakes: limits.handshakes,
  requestsPerCaller: limits.requests_per_caller,
  createsPerCaller: limits.creates_per_caller,
  capturesPerCaller: limits.captures_per_caller,
  requestsPerS: limits.requests_per_s,
  requestMs: limits.request_s * 1000,
  stallMs: limits.stall_s * 1000,
  idleMs: limits.idle_s * 1000,
});
