import { assertNever } from "../../../core/brand.ts";
import type { Clock } from "../../../core/clock.ts";
import type { ManagerConfig } from "../../config/overlay.ts";
import { EtcdManager } from "./etcd-manager.ts";
import { KubernetesManager } from "./kubernetes-manager.ts";
import type { SubnetManager } from "./subnet-manager.ts";

/** Opens the configured subnet manager; it sends nothing yet. Throws `CONFIG_INVALID`. */
export async function openManager(config: ManagerConfig, clock: Clock): Promise<SubnetManager> {
  switch (config.kind) {
    case "etcd":
      return new EtcdManager(config);
    case "kubernetes":
      return KubernetesManager.open(config, clock);
    default:
      return assertNever(config);
  }
}
