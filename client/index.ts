/** `@podnet/client`: pods from a program. */
export { type Client, connect } from "./connect.ts";
export type { Condition, Waiting } from "./wait-for.ts";
export type { Files } from "./files.ts";
export type { ProgramOptions, ProgramResult } from "./run-program.ts";
export { type CreatedPod, Pod } from "./pod.ts";
export type { CreateOptions, Pods, PodRequest } from "./pods.ts";
export { type ConnectOptions, connectPodnet, type Podnet } from "../api/client.ts";
export { type ErrorCode, isPodnetError, PodnetError } from "../core/errors.ts";
