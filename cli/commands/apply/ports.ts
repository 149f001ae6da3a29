import type { JsonObject } from "@bufbuild/protobuf";
import type { Pod } from "../../../api/gen/podnet/v1/pod_pb.ts";
import type { PodSpec, PublishedPort } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { portText } from "../../../api/port-text.ts";
import { toPodnetError } from "../../../core/errors.ts";
import { isSame } from "./differences.ts";
import type { Change, Step } from "./item.ts";

interface PortChanges {
  readonly changes: readonly Change[];
  /** Ports to take back, before an interface goes that they lead to. */
  readonly unpublish: readonly PublishedPort[];
  readonly publish: readonly PublishedPort[];
  /** Ports of both lists that lead to the same port of the pod at another address. */
  readonly moved: readonly PublishedPort[];
}

/**
 * Ports to take back and to publish, for a pod to have those that its document names. Those at the
 * host ports in `moving` stay, but lead to an address that goes: they are published again.
 */
export function portChanges(
  { named, spec }: { readonly named: JsonObject; readonly spec: PodSpec },
  pod: Pod,
  moving: ReadonlySet<number>,
): PortChanges {
  const left = [...pod.ports];
  const wanted = Object.hasOwn(named, "ports") ? spec.ports : pod.ports;
  const missing = [...wanted]
    // A port that podnet may choose is not to take what another one asks for.
    .toSorted((a, b) => Number(a.hostPort === 0) - Number(b.hostPort === 0))
    .filter((port) => {
      const at = left.findIndex((each) => isThat(each, port));
      if (at >= 0) left.splice(at, 1);
      return at < 0;
    });
  const moved = pod.ports.filter((port) => moving.has(port.hostPort) && !left.includes(port));
  return {
    changes: [
      ...left.map((port) => ({ field: "ports", was: textOf(port), becomes: "" })),
      ...missing.map((port) => ({ field: "ports", was: "", becomes: textOf(port) })),
      ...moved.map((port) => ({
        field: "ports",
        was: textOf(port),
        becomes: `${textOf(port)}, at another address of the pod`,
      })),
    ],
    unpublish: [...left, ...moved],
    publish: [...missing, ...moved],
    moved,
  };
}

/** Longest that ports may take to be published again after a failure, milliseconds. */
const againMs = 30_000;

/**
 * The calls that change a pod's ports and interfaces. Ports that only move are published again if
 * what comes between fails: the file may not name them, so that no later apply would miss them.
 */
export function stepsOf(
  idOrName: string,
  { unpublish, publish, moved }: PortChanges,
  between: readonly Step[],
): Step[] {
  const publishAll: Step[] =
    publish.length === 0
      ? []
      : [({ pods }, signal) => pods.publishPorts({ idOrName, ports: [...publish] }, { signal })];
  if (unpublish.length === 0) return [...between, ...publishAll];
  const change: Step = async (podnet, signal) => {
    const { pods } = podnet;
    await pods.unpublishPorts({ idOrName, ports: [...unpublish] }, { signal });
    try {
      for (const step of [...between, ...publishAll]) await step(podnet, signal);
    } catch (thrown) {
      if (moved.length === 0) throw thrown;
      const ports = [...moved];
      await pods
        .publishPorts({ idOrName, ports }, { signal: AbortSignal.timeout(againMs) })
        .catch((second: unknown) => {
          const texts = ports.map((port) => `-p ${textOf(port)}`).join(" ");
          throw toPodnetError(thrown).with({
            details: { unpublished: texts, publishing_again: toPodnetError(second).message },
          });
        });
      throw thrown;
    }
  };
  return [change];
}

const isThat = (is: PublishedPort, wanted: PublishedPort): boolean =>
  isSame(is.hostIp, wanted.hostIp) &&
  (wanted.hostPort === 0 || is.hostPort === wanted.hostPort) &&
  is.podPort === wanted.podPort &&
  (is.count ?? 1) === (wanted.count ?? 1) &&
  (is.protocol || "tcp") === (wanted.protocol || "tcp");

const textOf = (port: PublishedPort): string => portText(port).replace(/^0:/, "");
