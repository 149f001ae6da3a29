import type { PodnetError } from "../../core/errors.ts";
import type { PublishedPlan } from "./published-plan.ts";
import type { HolderId } from "../store/holder.ts";
import { type FlowCounts, Flows, sumOf } from "./flows.ts";
import type { HeldPort, PortAt, Served } from "./held-port.ts";
import { fieldOf, holdError } from "./hold-error.ts";
import { holdTcp } from "./tcp-port.ts";
import { holdUdp } from "./udp-port.ts";
import { portsOf } from "./wanted-port.ts";

/** Sockets opened at a time. */
const together = 64;

interface Place {
  readonly served: Served;
  /** Absent when another program has the port. */
  held: HeldPort | undefined;
  /** Why the port is not held. */
  error: PodnetError | undefined;
}

interface PodPorts {
  readonly flows: Flows;
  readonly places: Map<string, Place>;
}

/** Binds a host port's socket. */
export type Hold = (port: PortAt, served: Served) => Promise<HeldPort>;

const holdSocket: Hold = (port, served) =>
  (port.protocol === "tcp" ? holdTcp : holdUdp)(port, served);

async function tryToHold(port: PortAt, place: Place, hold: Hold): Promise<void> {
  try {
    place.held = await hold(port, place.served);
    place.error = undefined;
  } catch (thrown) {
    place.error = holdError(port, thrown);
  }
}

/**
 * The host ports of all pods and containers, each held by a socket. Calls for a pod or container
 * are made under its lock.
 */
export class HeldPorts {
  readonly #pods = new Map<HolderId, PodPorts>();
  readonly #hold: Hold;
  #former: FlowCounts = sumOf([]);

  constructor(hold: Hold = holdSocket) {
    this.#hold = hold;
  }

  /**
   * Holds all of a pod's ports, as they are now forwarded; ports that it holds already stay as they
   * are. All or none: when a port cannot be held, those that were not the pod's before are
   * released. The first `had` ports are not part of the request. Throws `PORT_IN_USE`,
   * `ADDRESS_INVALID`, `PREFLIGHT_FAILED`.
   */
  async hold(podId: HolderId, published: readonly PublishedPlan[] = [], had = 0): Promise<void> {
    const pod = this.#podOf(podId);
    const added = await this.#take(pod, published);
    const refused = added.find((key) => pod.places.get(key)?.error !== undefined);
    if (refused === undefined) return;
    const error = pod.places.get(refused)?.error;
    for (const key of added) this.#letGo(pod, key);
    this.#forgetEmpty(podId);
    const at = published.findIndex((each) => portsOf([each]).some(({ key }) => key === refused));
    throw at < had ? error : error?.with({ field: fieldOf(at - had) });
  }

  /**
   * Holds the ports of a pod's row. A port that cannot be held now is held once `retry` succeeds.
   */
  async adopt(podId: HolderId, published: readonly PublishedPlan[] = []): Promise<void> {
    await this.#take(this.#podOf(podId), published);
    this.#forgetEmpty(podId);
  }

  /** Why one of the pod's ports is not held; undefined when all are held. */
  missing(podId: HolderId): PodnetError | undefined {
    const places = this.#pods.get(podId)?.places.values() ?? [];
    return [...places].find(({ error }) => error !== undefined)?.error;
  }

  /** Retries to hold missing ports. Throws the reason when a port still cannot be held. */
  async retry(podId: HolderId, published: readonly PublishedPlan[] = []): Promise<void> {
    await this.#take(this.#podOf(podId), published);
    const error = this.missing(podId);
    this.#forgetEmpty(podId);
    if (error !== undefined) throw error;
  }

  /** Releases the pod's other ports, and ends their traffic. */
  keep(podId: HolderId, published: readonly PublishedPlan[] = []): void {
    const pod = this.#pods.get(podId);
    if (pod === undefined) return;
    const kept = new Set(portsOf(published).map(({ key }) => key));
    for (const key of pod.places.keys()) if (!kept.has(key)) this.#letGo(pod, key);
    this.#forgetEmpty(podId);
  }

  /** Lets go of all the pod's ports. */
  release(podId: HolderId): void {
    this.keep(podId);
  }

  /** Ends the traffic on loopback, as the pod has no machine any more. */
  cut(podId: HolderId): void {
    this.#pods.get(podId)?.flows.cut();
  }

  /** Traffic on loopback since podnetd started. */
  counts(): FlowCounts {
    return sumOf([this.#former, ...[...this.#pods.values()].map(({ flows }) => flows.counts)]);
  }

  /** Ports that are held. */
  get size(): number {
    const held = [...this.#pods.values()].flatMap(({ places }) => [...places.values()]);
    return held.filter((place) => place.held !== undefined).length;
  }

  [Symbol.dispose](): void {
    for (const podId of this.#pods.keys()) this.release(podId);
  }

  #podOf(podId: HolderId): PodPorts {
    const pod = this.#pods.get(podId) ?? { flows: new Flows(), places: new Map() };
    this.#pods.set(podId, pod);
    return pod;
  }

  /** Holds missing ports, a few at a time, and returns those that were not the pod's before. */
  async #take(pod: PodPorts, published: readonly PublishedPlan[]): Promise<string[]> {
    const wanted = portsOf(published);
    const added = wanted.filter(({ key }) => !pod.places.has(key));
    for (const { key, podIp, podPort } of wanted) {
      const place = pod.places.get(key);
      const lead = { podIp, podPort };
      if (place !== undefined) place.served.lead = lead;
      else {
        const served = { key, lead, flows: pod.flows };
        pod.places.set(key, { served, held: undefined, error: undefined });
      }
    }
    const waiting = wanted.values();
    const worker = async (): Promise<void> => {
      for (const port of waiting) {
        const place = pod.places.get(port.key);
        if (place !== undefined && place.held === undefined)
          await tryToHold(port, place, this.#hold);
      }
    };
    await Promise.all(Array.from({ length: Math.min(together, wanted.length) }, worker));
    return added.map(({ key }) => key);
  }

  #letGo(pod: PodPorts, key: string): void {
    const place = pod.places.get(key);
    pod.places.delete(key);
    place?.held?.close();
    pod.flows.cut(key);
  }

  #forgetEmpty(podId: HolderId): void {
    const pod = this.#pods.get(podId);
    if (pod === undefined || pod.places.size > 0) return;
    this.#former = sumOf([this.#former, { ...pod.flows.counts, active: 0 }]);
    this.#pods.delete(podId);
  }
}
