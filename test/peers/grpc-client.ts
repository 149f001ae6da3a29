import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { create, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { file_grpc_health_v1_health } from "../../api/gen/grpc/health/v1/health_pb.ts";
import { file_grpc_reflection_v1_reflection } from "../../api/gen/grpc/reflection/v1/reflection_pb.ts";

export interface GrpcCall {
  readonly service: string;
  readonly method: string;
  /** Requests as protobuf's JSON; one unless the method takes a stream. */
  readonly messages: readonly object[];
  /** Ends a stream after as many answers. */
  readonly take?: number;
}

export interface GrpcResult {
  readonly answers: readonly Record<string, unknown>[];
  readonly error?: {
    readonly code: string;
    readonly message: string;
    /** `podnet.v1.ErrorInfo`, if the error had one. */
    readonly info: Record<string, unknown> | null;
  };
}

export interface GrpcRun {
  /** What reflection reported: services, and the files that describe them. */
  readonly services: readonly string[];
  readonly files: readonly string[];
  /** One a call, in order. */
  readonly results: readonly GrpcResult[];
}

/** Makes calls with grpcio for Python, one after the other, over a unix socket. */
export async function grpcCalls(socket: string, calls: readonly GrpcCall[]): Promise<GrpcRun> {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-grpc-"));
  try {
    const standards = path.join(directory, "standards");
    const file = [file_grpc_health_v1_health.proto, file_grpc_reflection_v1_reflection.proto];
    const set = create(FileDescriptorSetSchema, { file });
    writeFileSync(standards, toBinary(FileDescriptorSetSchema, set));
    // Debian's own Python has python3-grpcio; another that comes first on the PATH has not.
    const program = path.join(import.meta.dirname, "grpc-client.py");
    const child = spawn("/usr/bin/python3", [program, socket, standards]);
    child.stdin.end(JSON.stringify(calls));
    const [out, err, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, "close") as Promise<[number | null]>,
    ]);
    if (code !== 0) throw new Error(`grpc-client.py ended with ${code}: ${err}`);
    return JSON.parse(out) as GrpcRun;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
