import type { PodSpec } from "../../../api/pod-spec.ts";
import type { CreateSpec } from "../../../api/validate/validate.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type PodId, podIdFromBytes } from "../../../core/names.ts";
import { podIdByName } from "../store/pods.ts";
import { attachedMachine } from "../machine/attach.ts";
import { gatherSnapshot, type World } from "./gather.ts";
import { namedLinks } from "./named-links.ts";
import { type FoundImage, onImage } from "../process/plan-process.ts";
import { defaultPodName, planPod } from "./plan.ts";
import { refuseForImage } from "./refuse-image.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { PodsParts } from "../pods-parts.ts";

/**
 * Results that had to be awaited before planning: between planning and a commit nothing is awaited.
 */
export type Found = Pick<World, "links" | "machine">;

/** Looks for a spec's links and machine on the host. Throws as `attachedMachine`. */
export async function findNamed(
  spec: Pick<PodSpec, "interfaces" | "attached">,
  parts: PodsParts,
  signal: AbortSignal,
): Promise<Found> {
  const links = await namedLinks(spec, parts.host);
  const machine = await attachedMachine(spec, parts, signal);
  return { links, ...(machine === undefined ? {} : { machine }) };
}

/**
 * Plans a pod by its spec, on a host with these links. Takes nothing. With a `machine` that is
 * there already, the pod has its id and user; `usersTaken` are of machines that are no pod's.
 */
export function planNew(
  { spec }: Pick<CreateSpec, "spec">,
  found: Found,
  parts: PodsParts,
  {
    imagesOnly,
    machine,
    usersTaken,
  }: {
    readonly imagesOnly: boolean;
    readonly machine?: { readonly podId: PodId; readonly uid: number | undefined } | undefined;
    readonly usersTaken: ReadonlySet<number>;
  },
): PodPlan {
  const image = imageOf(spec, parts);
  const seen = worldOf(parts, found, imagesOnly);
  const world = {
    ...seen,
    usersTaken,
    uid: machine?.uid,
    ...(image === undefined ? {} : { image }),
  };
  const asked = onImage(spec, image);
  const snapshot = gatherSnapshot(asked, machine?.podId ?? freshId(parts), world);
  for (const which of snapshot.cni?.passedOver ?? [])
    parts.log.warn({}, `Skipping a CNI configuration file: ${which}`);
  return planPod(asked, snapshot);
}

/** Throws `IMAGE_NOT_FOUND`, `UNSUPPORTED` for one of another architecture, as `refuseForImage`. */
function imageOf(spec: PodSpec, { images, config }: PodsParts): FoundImage | undefined {
  const { boot } = spec;
  if (boot.image === undefined) return undefined;
  if (images === undefined)
    throw new PodnetError("UNSUPPORTED", "This podnetd has no store of images", {
      field: "boot.image",
      hint: "Convert the image, and give the file as a disk: podnet image convert --help",
    });
  const found = images.findImage(boot.image);
  const { architecture } = found.config;
  const own = config.qemu.arch === "arm64" ? "arm64" : "amd64";
  refuseForImage(spec, found);
  // (Of a disk it is not known.)
  if (found.type === "disk" || architecture === own) return found;
  throw new PodnetError(
    "UNSUPPORTED",
    `The image "${boot.image}" is for ${architecture}; machines of this host are ${own}`,
    { field: "boot.image", hint: "Use the image for this architecture" },
  );
}

/**
 * The process to plan a machine of an image with: the image's own, or a word in its place where the
 * image says of no program. Throws as `planNew`.
 */
export function someProcess(
  image: string,
  { images }: PodsParts,
): { process?: { args: string[] } } {
  const config = images?.findImage(image).config;
  const says = config !== undefined && config.entrypoint.length + config.command.length > 0;
  return says ? {} : { process: { args: ["/"] } };
}

/** The sources of the planner's snapshot. */
export function worldOf(
  { config, db, addresses, networks, host }: PodsParts,
  found: Found,
  imagesOnly: boolean,
): World {
  return {
    config,
    db,
    addresses,
    networks,
    driver: host.driver.capabilities(),
    confinement: host.confinement,
    imagesOnly,
    ...found,
    randomBytes: (count) => host.randomBytes(count),
  };
}

/** An id that no pod has, nor the name that would be made of it. */
function freshId({ host, db }: PodsParts): PodId {
  for (;;) {
    const id = podIdFromBytes(host.randomBytes(12));
    if (podIdByName(db, defaultPodName(id)) === undefined) return id;
  }
}
