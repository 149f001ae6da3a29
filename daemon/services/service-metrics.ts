import { Counter, Gauge } from "prom-client";
import type { Services } from "./services.ts";

/** How services fare, looked at when it is asked for. */
export function serviceMetrics(
  services: Pick<Services, "list" | "healthChanges">,
): readonly (Gauge | Counter)[] {
  return [
    new Gauge({
      name: "podnet_service_backends",
      help: "Backends that are there, by service and health (healthy, unhealthy, unknown, unchecked, drained)",
      labelNames: ["service", "health"],
      registers: [],
      collect() {
        // Services come and go.
        this.reset();
        for (const { name, endpoints } of services.list()) {
          this.set({ service: name, health: "healthy" }, 0);
          for (const { weight, health = "unchecked" } of endpoints)
            this.inc({ service: name, health: weight === 0 ? "drained" : health });
        }
      },
    }),
    new Counter({
      name: "podnet_service_health_changes_total",
      help: "Times that a backend became healthy or unhealthy, by service",
      labelNames: ["service", "health"],
      registers: [],
      collect() {
        this.reset();
        for (const { service, healthy, count } of services.healthChanges)
          this.inc({ service, health: healthy ? "healthy" : "unhealthy" }, count);
      },
    }),
  ];
}
