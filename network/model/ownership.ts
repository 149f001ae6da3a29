import { type IfName, parseIfName } from "../../core/names.ts";
import { mark, type PluggedFragment } from "./desired.ts";

/**
 * The owner of a marked object: `podnet:network:default`, `podnet:pod:abcdefghijkl:0`,
 * `podnet:chain:HYPER`, `podnet:overlay:default`, `podnet:attachment:17`, `podnet:service:db`.
 */
export interface Owner {
  readonly kind: "network" | "pod" | "chain" | "overlay" | "attachment" | "service";
  readonly key: string;
  /** A pod's interface. */
  readonly index?: number;
}

/** The mark of a network's link and rules. */
export const networkMark = (name: string): string => `${mark.alias}network:${name}`;

/** The mark of a pod's port; `index` counts its interfaces from 0. */
export const podMark = (id: string, index: number): string => `${mark.alias}pod:${id}:${index}`;

/** The mark of a pod's rules. */
export const podRuleMark = (id: string): string => `${mark.alias}pod:${id}`;

/** The mark of the rules for published ports. */
export const publishedMark = ({ kind, key }: Pick<PluggedFragment, "kind" | "key">): string =>
  kind === "pod" ? podRuleMark(key) : attachmentMark(key);

/** Whether an owner has ports, and publishes. */
export const isPlugged = ({ kind }: Owner): boolean => kind === "pod" || kind === "attachment";

/** The mark of an overlay's devices and rules. */
export const overlayMark = (name: string): string => `${mark.alias}overlay:${name}`;

/** The mark of a service's rules. */
export const serviceMark = (name: string): string => `${mark.alias}service:${name}`;

/** The mark of an attachment's links and rules. */
export const attachmentMark = (key: string): string => `${mark.alias}attachment:${key}`;

/** The link that limits what a guest sends by one of its interfaces; named as its tap. */
export const podIfb = (id: string, index: number): IfName =>
  parseIfName(`pi${id}${index.toString(36)}`);

/** The link that limits what a container sends. */
export const attachmentIfb = (key: string): IfName => parseIfName(`pi${key}`);

/** The mark of what all networks share in a table: jumps into the chain. */
export const chainMark = (chain: string): string => `${mark.alias}chain:${chain}`;

const pattern =
  /^podnet:(?:(network|chain|overlay|attachment|service):([A-Za-z0-9_.-]+)|pod:([a-z2-7]{1,63})(?::([0-9]{1,4}))?)$/;

/** Reads a link alias or a rule comment; undefined when it is not one of our marks. */
export function parseOwner(text: string | undefined): Owner | undefined {
  const match = text === undefined ? null : pattern.exec(text);
  if (match === null) return undefined;
  const [, kind, key, pod, index] = match;
  if (pod !== undefined)
    return { kind: "pod", key: pod, ...(index === undefined ? {} : { index: Number(index) }) };
  return { kind: kind as Exclude<Owner["kind"], "pod">, key: key as string };
}

/** Whether the mark belongs to the given owner, all interfaces of a pod included. */
export function ownedBy(text: string | undefined, kind: Owner["kind"], key: string): boolean {
  const owner = parseOwner(text);
  return owner?.kind === kind && owner.key === key;
}
