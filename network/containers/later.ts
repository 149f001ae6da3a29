import type { Link } from "../../linux/rtnetlink/links/link.ts";
import type { AttachmentFragment, InsidePart, LaterChanges } from "./desired.ts";

/**
 * Something that is planned or found different, and which part of the inside it is about, if that
 * may be a later plugin's.
 */
interface About {
  readonly part?: InsidePart;
}

/**
 * The steps that podnetd may take in a container. While later plugins may still run, podnetd takes
 * no step that may revert their changes, unless the link was just made or is down: a link that goes
 * down loses its routes and IPv6 addresses by itself. Pure.
 */
export function permitted<T extends About>(
  steps: readonly T[],
  { awaitsPlugins, later }: Pick<AttachmentFragment, "awaitsPlugins" | "later">,
  { guest, isNew }: { readonly guest: Pick<Link, "up">; readonly isNew: boolean },
): T[] {
  const waits = awaitsPlugins === true && guest.up && !isNew;
  return steps.filter(
    ({ part }) => part === undefined || !(waits || later?.left?.includes(part) === true),
  );
}

/**
 * Steps for a machine that uses the container's link as its own (Kata's macvtap): its MAC and
 * addresses are the machine's. Pure.
 */
export const withoutMachineParts = <T extends About>(steps: readonly T[]): T[] =>
  steps.filter(({ part }) => part === undefined || !/^(?:mac|address|route)/.test(part));

/** Whether a machine has a link upon this one, and with it its MAC and addresses. */
export const carriesMachine = (links: readonly Link[], guest: Pick<Link, "index">): boolean =>
  links.some(
    ({ kind, link, linkNetnsId }) =>
      (kind === "macvtap" || kind === "ipvtap") &&
      link === guest.index &&
      linkNetnsId === undefined,
  );

/** The deviations from the plan, as changes of later plugins. Pure. */
export function laterChanges(
  steps: readonly About[],
  { mac, mtu }: Pick<Link, "mac" | "mtu">,
): LaterChanges {
  const parts = new Set(steps.flatMap(({ part }) => part ?? []));
  const left = [...parts].filter((part) => part !== "mac" && part !== "mtu");
  return {
    ...(parts.has("mac") && mac !== undefined ? { mac } : {}),
    ...(parts.has("mtu") ? { mtu } : {}),
    ...(left.length === 0 ? {} : { left }),
  };
}

/** A text about the changes of later plugins; undefined if there are none. */
export function laterText({ mac, mtu, left = [] }: LaterChanges): string | undefined {
  const texts = [
    ...(mac === undefined ? [] : [`MAC ${mac}`]),
    ...(mtu === undefined ? [] : [`MTU ${mtu}`]),
    ...left,
  ];
  return texts.length === 0 ? undefined : texts.join(", ");
}
