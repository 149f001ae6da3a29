import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
  type HealthCheckResponse,
  HealthCheckResponseSchema,
} from "./gen/grpc/health/v1/health_pb.ts";

/** Which services answer; the empty name stands for the whole server. */
export class ServingStatus {
  readonly #serving = new Map<string, boolean>();
  readonly #wake = new Set<() => void>();

  /** Says whether a service answers, and tells those who watch. */
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

/** Serves grpc.health.v1: https://github.com/grpc/grpc/blob/master/doc/health-checking.md */
export function addHealth(router: ConnectRouter, serving: ServingStatus): void {
  router.service(Health, {
    check({ service }) {
      const status = serving.get(service);
      if (status === Status.SERVICE_UNKNOWN) {
        throw new ConnectError(`Service "${service}" is not known`, Code.NotFound);
      }
      return response(status);
    },
    async *watch({ service }, context) {
      for await (const status of serving.watch(service, context.signal)) yield response(status);
    },
  });
}
