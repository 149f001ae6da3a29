import type { DataDiskSpec, PortSpec } from "../../../api/pod-spec.ts";
import type { InterfaceChange } from "../../../api/validate/interface-change.ts";
import type { LimitsChange } from "../../../core/rate-limits.ts";
import type { IfName } from "../../../core/names.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import type { Ending } from "./end-pod.ts";
import { gatherSnapshot } from "../plan/gather.ts";
import { followServers } from "../plan/gather-networks.ts";
import type { PortsWorld } from "../../published/gather-ports.ts";
import { changeLimits, withLimits } from "./limit.ts";
import { addDisk, removeDisk } from "../disks/live-disks.ts";
import { findDisk, planDisk, specOfDisk } from "../disks/plan-disk.ts";
import { changeInterfaces } from "../interfaces/live-interfaces.ts";
import { type LivePod, livePod } from "./live-pod.ts";
import { placesNow, refuseOwners } from "../machine/attach.ts";
import { namedLinks } from "../plan/named-links.ts";
import { askedBy, planChange } from "../plan/plan-change.ts";
import { worldOf } from "../plan/plan-new.ts";
import type { PodsParts } from "../pods-parts.ts";
import { grow, type SizeChange, sizeText, withGrowth, withResources } from "./resize.ts";
import { publish, unpublish, withoutPorts, withPorts } from "./publish.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";

/** A pod before and after a change. */
export interface Replanned {
  readonly before: PodContents;
  readonly after: PodContents;
}

/** The parts of podnetd that a change of a pod needs. */
export interface ChangesParts extends PodsParts {
  readonly supervision: Ending;
  running(idOrName: string): LivePod;
  change<T>(idOrName: string, work: (live: LivePod, row: PodRow) => Promise<T>): Promise<T>;
  /** Does the work in the pod's turn, whatever its state, and answers the row of then. */
  turn(idOrName: string, work: (row: PodRow) => Promise<void>): Promise<PodRow>;
}

const hasMachine = ({ state }: PodRow): boolean => state !== "stopped" && state !== "failed";

/** Changes of pods that run: their interfaces, disks and published ports. */
export class Changes {
  readonly #parts: ChangesParts;

  constructor(parts: ChangesParts) {
    this.#parts = parts;
  }

  /** Plans a change of an interface of a running pod. Takes nothing. */
  async planInterface(idOrName: string, change: InterfaceChange): Promise<Replanned> {
    this.#parts.running(idOrName);
    const before = this.#parts.records.find(idOrName);
    return { before, after: await this.#changed(before, change) };
  }

  /** Adds, changes or removes an interface of a running pod; the others stay as they are. */
  changeInterface(idOrName: string, change: InterfaceChange): Promise<PodRow> {
    return this.#parts.change(idOrName, async (live, row) => {
      const next = await this.#changed(row, change);
      await changeInterfaces(live, row, change, next, this.#parts.supervision);
      return this.#parts.records.find(row.id);
    });
  }

  async #changed(row: PodRow, change: InterfaceChange): Promise<PodContents> {
    const asked = askedBy(row, change);
    const links = await namedLinks({ interfaces: asked }, this.#parts.host);
    const { vm, ended } = this.#parts.running(row.id);
    const machine = await placesNow(
      row.plan.vm,
      change.kind === "add" ? vm : undefined,
      ended.signal,
    );
    const { ports: _theirs, ...spec } = row.spec;
    // Nothing is awaited from here to the commit.
    const found = machine === undefined ? { links } : { links, machine };
    const world = worldOf(this.#parts, found, false);
    const snapshot = gatherSnapshot({ ...spec, interfaces: asked }, row.id, world);
    const next = planChange(row, change, snapshot);
    return { ...next, plan: followServers(next, this.#parts.networks) };
  }

  /**
   * Plugs a disk into a running pod, and answers its name too. With `filesOnly` the caller may give
   * only files of `access.write_through_paths` and `access.image_paths`.
   */
  addDisk(
    idOrName: string,
    asked: DataDiskSpec,
    filesOnly: boolean,
  ): Promise<{ readonly row: PodRow; readonly name: string }> {
    return this.#parts.change(idOrName, async (live, row) => {
      refuseOwners(row, "plug disks into");
      const world = worldOf(this.#parts, { links: {} }, filesOnly);
      const spec = specOfDisk(row.spec, asked);
      const disk = planDisk(spec, gatherSnapshot(spec, row.id, world), row.plan.disks);
      await addDisk(live, disk, this.#parts.supervision);
      return { row: this.#parts.records.find(row.id), name: disk.name };
    });
  }

  /** Removes a plugged disk of a pod that runs, or that has no machine. */
  removeDisk(idOrName: string, name: string): Promise<PodRow> {
    return this.#parts.turn(idOrName, async (row) => {
      const disk = findDisk(row, name);
      const live = hasMachine(row) ? this.#parts.running(row.id) : livePod(row);
      await removeDisk(live, disk, this.#parts.supervision);
    });
  }

  /** Plans a change of a pod's processors and memory. Takes nothing. */
  planResize(idOrName: string, asked: SizeChange): Replanned {
    const before = this.#parts.records.find(idOrName);
    return { before, after: this.#resized(before, asked) ?? before };
  }

  /**
   * Gives a pod other processors and memory: a machine that runs grows, and a pod without one has
   * them from its next start on.
   */
  resize(idOrName: string, asked: SizeChange): Promise<PodRow> {
    return this.#parts.turn(idOrName, async (row) => {
      const next = this.#resized(row, asked);
      if (next === undefined) return;
      const { records, supervision } = this.#parts;
      if (hasMachine(row)) return await grow(this.#parts.running(row.id), next, supervision);
      const text = `resized to ${sizeText(next.spec.resources)} from its next start on`;
      records.replan(livePod(row), { ...next, text });
    });
  }

  /** Undefined when nothing changes. */
  #resized(row: PodRow, asked: SizeChange): PodContents | undefined {
    refuseOwners(row, "change");
    if (hasMachine(row)) {
      this.#parts.running(row.id);
      return withGrowth(row, asked);
    }
    const world = worldOf(this.#parts, { links: {} }, false);
    return withResources(row, asked, gatherSnapshot(row.spec, row.id, world));
  }

  /** Plans the publishing of ports of a running pod. Takes nothing. */
  planPublish(idOrName: string, ports: readonly PortSpec[]): Replanned {
    this.#parts.running(idOrName);
    const before = this.#parts.records.find(idOrName);
    return { before, after: withPorts(before, ports, this.#portsWorld()) };
  }

  planUnpublish(idOrName: string, ports: readonly PortSpec[]): Replanned {
    this.#parts.running(idOrName);
    const before = this.#parts.records.find(idOrName);
    return { before, after: withoutPorts(before, ports) };
  }

  /**
   * Publishes more ports of a running pod, all of them or none, and answers these as they were
   * decided.
   */
  publish(
    idOrName: string,
    ports: readonly PortSpec[],
  ): Promise<{ readonly row: PodRow; readonly ports: readonly PublishedPlan[] }> {
    return this.#parts.change(idOrName, async (live, row) => {
      const next = withPorts(row, ports, this.#portsWorld());
      const added = next.plan.published?.slice(row.plan.published?.length ?? 0) ?? [];
      const decided = ports.map((port, i) => ({ ...port, hostPort: added[i]?.hostPort ?? 0 }));
      const { db } = this.#parts;
      const planned = db.commits;
      // Without a commit since then no other pod has got a port.
      const stillFree = (): void => {
        if (db.commits !== planned) withPorts(row, decided, this.#portsWorld());
      };
      if (ports.length > 0) await publish(live, row, next, stillFree, this.#parts.supervision);
      return { row: this.#parts.records.find(row.id), ports: added };
    });
  }

  /**
   * Unpublishes ports of a running pod, and ignores those that it does not publish. Returns both
   * plans too.
   */
  unpublish(
    idOrName: string,
    ports: readonly PortSpec[],
  ): Promise<Replanned & { readonly row: PodRow }> {
    return this.#parts.change(idOrName, async (live, row) => {
      const next = withoutPorts(row, ports);
      if (next.plan.published?.length !== (row.plan.published ?? []).length)
        await unpublish(live, row, next, this.#parts.supervision);
      return { row: this.#parts.records.find(row.id), before: row, after: next };
    });
  }

  /** Plans other limits of a running pod. Takes nothing. */
  planLimit(idOrName: string, change: LimitsChange, name: IfName | undefined): Replanned {
    this.#parts.running(idOrName);
    const before = this.#parts.records.find(idOrName);
    return { before, after: withLimits(before, change, name) };
  }

  /** Changes limits of a running pod: of one interface, or of all on bridges. */
  limit(idOrName: string, change: LimitsChange, name: IfName | undefined): Promise<PodRow> {
    return this.#parts.change(idOrName, async (live, row) => {
      await changeLimits(live, row, withLimits(row, change, name), this.#parts.supervision);
      return this.#parts.records.find(row.id);
    });
  }

  #portsWorld(): PortsWorld {
    const { db, config, host } = this.#parts;
    return { db, config, randomBytes: (count) => host.randomBytes(count) };
  }
}
