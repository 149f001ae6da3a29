import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type PodName, parsePodName } from "../../../core/names.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import { planAgent } from "../guest/plan-agent.ts";
import { refuseUntellable } from "../guest/plan-agentless.ts";
import { answered } from "../interfaces/plan-answers.ts";
import { agentOfAttached, planAttachedVm } from "./plan-attached.ts";
import { planVm } from "./plan-boot.ts";
import { portsOf } from "../interfaces/plan-bridge-ports.ts";
import { guestInterfaces } from "../guest/plan-guest.ts";
import {
  refuseForHyperstart,
  toldToHyperstart,
  worldOfHyperstart,
} from "../guest/plan-hyperstart.ts";
import { planInterfaces } from "../interfaces/plan-interfaces.ts";
import { planPublished, publishedDesired } from "../../published/plan-published.ts";
import { planRoutes } from "../interfaces/plan-routes.ts";
import { planSeed } from "./plan-seed.ts";
import { planServers } from "../interfaces/plan-servers.ts";
import { withSources } from "../interfaces/plan-sources.ts";
import { type InterfacePlan, type PodPlan, planVersion } from "../store/pod-plan.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";
import type { Snapshot } from "./snapshot.ts";

/** How long the guest waits for a NIC that is being plugged. Hot-plug takes some 30 ms, a loaded host seconds. */
const nicWaitMs = 15_000;

/** The name a pod gets that asks for none. */
export const defaultPodName = (podId: string): PodName => parsePodName(`pod-${podId.slice(0, 6)}`);

/**
 * Decides everything about a new pod, without effect: the same spec and snapshot give the same plan.
 * `describe` is the driver's pure rendering of the command line.
 *
 * Throws the first thing wrong with what was asked: `NAME_IN_USE`, `ADDRESS_*`, `MAC_IN_USE`, `GATEWAY_CONFLICT`,
 * `MTU_OUT_OF_RANGE`, `BRIDGE_FULL`, `NIC_SLOTS_FULL`, `IMAGE_*`, `MEMORY_TOO_SMALL`, `NETWORK_NOT_FOUND`,
 * `POOL_EXHAUSTED`, `PORT_IN_USE`, `PORTS_EXHAUSTED`, `UNSUPPORTED`, `INVALID_ARGUMENT`.
 */
export function planPod(
  spec: PodSpec,
  snapshot: Snapshot,
  describe: (vm: VmPlan) => readonly string[],
): PodPlan {
  const name = spec.name ?? defaultPodName(snapshot.podId);
  if (snapshot.nameHolder !== undefined) {
    throw new PodnetError(
      "NAME_IN_USE",
      `Pod name "${name}" is taken by pod ${snapshot.nameHolder}`,
      {
        field: "name",
        hint: `Choose another name, or delete that pod: podnet delete ${name}`,
        details: { holder: snapshot.nameHolder },
      },
    );
  }
  const { attached } = spec;
  const agent = attached === undefined ? planAgent(spec) : agentOfAttached(attached, spec);
  const bare = attached === undefined ? planVm(spec, snapshot) : planAttachedVm(attached, snapshot);
  const plain = agent === "hyperstart";
  if (plain) refuseForHyperstart(spec);
  const world = plain
    ? worldOfHyperstart(snapshot, spec.interfaces, (i) => `interfaces[${i}]`)
    : snapshot;
  const chosen = planInterfaces(spec, world);
  const interfaces = agent === "none" ? chosen.map((each) => answered(each, snapshot)) : chosen;
  const message = guestOf(spec, name, interfaces, snapshot);
  const guest = plain ? toldToHyperstart(message) : message;
  if (agent === "none" && attached === undefined && spec.boot.cloudInit === undefined)
    refuseUntellable(guest, interfaces);
  const vm: VmPlan = {
    ...bare,
    ...planSeed({ podId: snapshot.podId, agent }, spec, guest, interfaces),
    ...(agent === "none" && attached === undefined ? { held: true } : {}),
  };
  const published = planPublished(
    spec.ports ?? [],
    { interfaces, routes: guest.routes },
    snapshot.hostPorts,
  );
  return {
    version: planVersion,
    podId: snapshot.podId,
    name,
    vm,
    ...(agent === undefined ? {} : { agent }),
    argv: describe(vm),
    interfaces,
    ports: withSources(
      {
        kind: "pod",
        key: snapshot.podId,
        ports: portsOf(spec, interfaces, snapshot),
        ...publishedPart(published, interfaces),
      },
      interfaces,
    ),
    ...(published.length === 0 ? {} : { published }),
    guest,
  };
}

/** A pod's fragment names published ports only where there are any: most have none, and so had all of an earlier podnetd. */
function publishedPart(
  published: readonly PublishedPlan[],
  interfaces: readonly InterfacePlan[],
): Pick<PodFragment, "published"> {
  const desired = publishedDesired(published, interfaces);
  return desired.length === 0 ? {} : { published: desired };
}

function guestOf(
  spec: PodSpec,
  name: PodName,
  interfaces: readonly InterfacePlan[],
  snapshot: Snapshot,
): GuestConfig {
  return {
    requestId: snapshot.podId,
    hostname: spec.hostname ?? name,
    dns: planServers(spec, snapshot.dns),
    ...guestInterfaces(interfaces),
    routes: planRoutes(spec, interfaces),
    neighbours: [],
    waitMs: nicWaitMs,
  };
}
