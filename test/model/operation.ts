import type { Podnet } from "../../api/client.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";

/**
 * A host port published, or an interface added; or either taken away; or refused because another
 * has it.
 */
export interface Operation {
  readonly kind: "took" | "gave" | "refused" | "unclear";
  readonly invoked: number;
  readonly returned: number;
  readonly name: string;
  /** The pod's, where it is known. */
  readonly id: string | undefined;
  /** `port 9001`, or `eth1`. */
  readonly what: string;
  /** What no other pod may have meanwhile: the port again, or the interface's address. */
  readonly thing?: string;
}

/** An operation that is to be tried. */
export interface Asked {
  readonly kind: "took" | "gave";
  readonly what: string;
  act(): Promise<{ readonly pod?: Pod | undefined }>;
}

/** One of few ports and interfaces, so that they are asked for by many. */
export function randomOperation({ pods }: Podnet, idOrName: string, random: () => number): Asked {
  const hostPort = 9000 + Math.floor(random() * 6);
  const ports = [{ hostPort, podPort: 80 }];
  const guestName = `eth${1 + Math.floor(random() * 3)}`;
  const port = `port ${hostPort}`;
  const choice = random();
  if (choice < 0.35)
    return { kind: "took", what: port, act: () => pods.publishPorts({ idOrName, ports }) };
  if (choice < 0.6)
    return { kind: "gave", what: port, act: () => pods.unpublishPorts({ idOrName, ports }) };
  if (choice < 0.8)
    return {
      kind: "took",
      what: guestName,
      act: () => pods.addInterface({ idOrName, interface: { guestName } }),
    };
  return {
    kind: "gave",
    what: guestName,
    act: () => pods.removeInterface({ idOrName, guestName }),
  };
}

/** Refusals after which nothing is held that was not before. */
const nothingDone: readonly string[] = [
  "INTERFACE_NOT_FOUND",
  "ADDRESS_IN_USE",
  "NAME_IN_USE",
  "INVALID_ARGUMENT",
];

/** Tries one: what is to be noted of it, and the pod as it is then, or what else was said. */
export async function tryOperation(
  { kind, what, act }: Asked,
  name: string,
): Promise<{ readonly operation?: Operation; readonly pod?: Pod; readonly error?: Error }> {
  const invoked = performance.now();
  const operation = (as: Pick<Operation, "kind" | "id" | "thing">): Operation => ({
    ...as,
    invoked,
    returned: performance.now(),
    name,
    what,
  });
  try {
    const { pod } = await act();
    if (pod === undefined) throw new Error("There is no pod in the answer");
    const added = pod.interfaces.find(({ guestName }) => guestName === what);
    const thing = what.startsWith("port") ? what : added?.addresses[0];
    const held = kind === "took" && thing !== undefined;
    return { pod, operation: operation({ kind, id: pod.id, ...(held ? { thing } : {}) }) };
  } catch (error) {
    if (!isPodnetError(error)) throw error;
    if (error.code === "PORT_IN_USE")
      return { operation: operation({ kind: "refused", id: undefined }) };
    // A delete or a stop came in between, and its guest went with it: what there is of it is taken
    // back.
    const cut =
      ["AGENT_DISCONNECTED", "QEMU_EXITED"].includes(error.code) ||
      (error.code === "CANCELLED" && /let go of/.test(error.message));
    if (cut) return { operation: operation({ kind: "unclear", id: undefined }) };
    return nothingDone.includes(error.code) ? {} : { error };
  }
}
