import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
  type HealthCheckResponse,
  HealthCheckResponseSchema,
} from "./gen/grpc/health/v1/health_pb.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { toErrorInfo } from "./codes.ts";
import { ErrorInfoSchema } from "./gen/podnet/v1/error_pb.ts";
import { addService } from "./service.ts";

/** Which services answer; the empty name stands for the whole server. */
export class ServingStatus {
  readonly #serving = new Map<string, boolean>();
  readonly #wake = new Set<() => void>();

  /** Sets whether a service answers, and notifies its watchers. */
  set(service: string, serving: boolean): void {
    this.#serving.set(service, serving);
    for (const wake of this.#wake) wake();
  }

  get(service: string): Status {
    const serving = this.#serving.get(service);
    if (serving === undefined) return Status.SERVICE_UNKNOWN;
    return serving ? Status.SERVING : Status.NOT_SERVING;
  }

  /** The status now and each one after it that differs, until the signal aborts. */
  async *watch(service: string, signal: AbortSignal): AsyncGenerator<Status> {
    let sent: Status | undefined;
    while (!signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake.add(resolve);
      const onAbort = (): void => resolve();
      signal.addEventListener("abort", onAbort, { once: true });
      try {
        const now = this.get(service);
        if (now !== sent) yield (sent = now);
        else await promise;
      } finally {
        this.#wake.delete(resolve);
        signal.removeEventListener("abort", onAbort);
      }
    }
  }
}

const response = (status: Status): HealthCheckResponse =>
  create(HealthCheckResponseSchema, { status });

/** The status is what the protocol of health checks demands; none of our codes travels as it. */
function notServed(service: string): ConnectError {
  const error = new PodnetError(
    "INVALID_ARGUMENT",
    `Service "${printable(service)}" is not known`,
    {
      field: "service",
      hint: "Leave it empty to ask about the whole server",
    },
  );
  const info = { desc: ErrorInfoSchema, value: toErrorInfo(error) };
  return new ConnectError(error.message, Code.NotFound, undefined, [info]);
}

/** Serves grpc.health.v1: https://github.com/grpc/grpc/blob/master/doc/health-checking.md */
export function addHealth(router: ConnectRouter, serving: ServingStatus): void {
  addService(router, Health, {
    check({ service }) {
      const status = serving.get(service);
      if (status === Status.SERVICE_UNKNOWN) throw notServed(service);
      return response(status);
    },
    async *watch({ service }, context) {
      for await (const status of serving.watch(service, context.signal)) yield response(status);
    },
  });
}
