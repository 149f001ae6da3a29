import { hostname } from "node:os";
import path from "node:path";
import type { Clock } from "../../../core/clock.ts";
import { PodnetError } from "../../../core/errors.ts";
import { KubeClient } from "../../../kubernetes/client.ts";
import { inClusterAccess } from "../../../kubernetes/in-cluster.ts";
import { parseKubeconfig } from "../../../kubernetes/kubeconfig.ts";
import { readRegular } from "../../../linux/files/regular-file.ts";
import type { Prefix } from "../../../overlay/flannel/prefix.ts";
import type { HostLease } from "../../../overlay/host-lease.ts";
import { NodeLease, type NodeSettings } from "../../../overlay/kube/node-lease.ts";
import { nodeOfKey } from "../../../overlay/kube/node-leases.ts";
import { KubeNodes, type NodeStore } from "../../../overlay/kube/node-store.ts";
import type { Reservation } from "../../../overlay/reservations.ts";
import type { KubernetesConfig } from "../../config/overlay.ts";
import type { LeaseParts, SubnetManager } from "./subnet-manager.ts";

/** A larger file is neither a kubeconfig nor the configuration of an overlay. */
const mostBytes = 1 << 20;

/** Subnets as podCIDRs of Kubernetes' Nodes, alongside flannel's. */
export class KubernetesManager implements SubnetManager {
  readonly name = "Kubernetes";
  /** An overlay is what a cluster has one of. */
  readonly names = undefined;
  /** Kubernetes has names of its own for pods. */
  readonly records = undefined;
  readonly #settings: NodeSettings;
  readonly #store: NodeStore;

  private constructor(settings: NodeSettings, store: NodeStore) {
    this.#settings = settings;
    this.#store = store;
  }

  /** Reads how the API server is reached, and sends nothing yet. Throws `CONFIG_INVALID`. */
  static async open(config: KubernetesConfig, clock: Clock): Promise<KubernetesManager> {
    const { kubeconfig } = config;
    const access =
      kubeconfig === undefined
        ? inClusterAccess(process.env)
        : await parseKubeconfig(readKubeconfig(kubeconfig), path.dirname(kubeconfig));
    const node = config.node ?? process.env["NODE_NAME"] ?? hostname().toLowerCase();
    return new KubernetesManager({ ...config, node }, new KubeNodes(new KubeClient(access), clock));
  }

  open(_prefix: Prefix, parts: LeaseParts): HostLease {
    const settings = this.#settings;
    const readConfig = async (): Promise<string | undefined> => readNetConf(settings.netConf);
    return new NodeLease({ ...parts, store: this.#store, settings, readConfig });
  }

  /** A Node's lease does not end. */
  timeLeft(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  hostOf(key: string): string {
    return nodeOfKey(key);
  }

  /** Each Node has its podCIDR for as long as it exists: none is kept apart from that. */
  reservations(): Reservation[] {
    return [];
  }

  reserve(): Promise<never> {
    return Promise.reject(fixed());
  }

  unreserve(): Promise<never> {
    return Promise.reject(fixed());
  }

  /** Each request has a connection of its own. */
  [Symbol.dispose](): void {}
}

const fixed = (): PodnetError =>
  new PodnetError(
    "UNSUPPORTED",
    "Kubernetes gives each host its subnet, so that none can be kept",
    {
      hint: "A Node keeps its podCIDR for as long as it exists",
    },
  );

/** Links are followed: those of a ConfigMap lead to what is in force. */
const readText = (file: string): string =>
  readRegular(file, mostBytes, { follow: true }).toString("utf8");

function readKubeconfig(file: string): string {
  try {
    return readText(file);
  } catch (cause) {
    throw new PodnetError("CONFIG_INVALID", `The kubeconfig "${file}" cannot be read`, {
      field: "overlay.kubernetes.kubeconfig",
      hint: "Check that it is there, and its permissions",
      cause,
    });
  }
}

function readNetConf(file: string): string | undefined {
  try {
    return readText(file);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw new PodnetError(
      "CONFIG_INVALID",
      `The overlay's configuration "${file}" cannot be read`,
      {
        field: "overlay.kubernetes.net_conf",
        hint: "Check that it is a file, and its permissions",
        cause,
      },
    );
  }
}
