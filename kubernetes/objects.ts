import type { PodnetError } from "../core/errors.ts";
import { kubernetesError, statusError } from "./errors.ts";
import { fieldOf, parseJson, textOf } from "./json.ts";

/** An object of Kubernetes: what identifies it, and all of its JSON, which is not checked. */
export interface KubeObject {
  readonly name: string;
  /** Another object of the same name has another one. */
  readonly uid: string;
  /** Opaque: it is only compared for equality, and given back to the API server. */
  readonly resourceVersion: string;
  readonly json: unknown;
}

/** A part of a list. */
export interface Page {
  readonly items: readonly KubeObject[];
  readonly resourceVersion: string;
  /** Asks for the next part; undefined: this is the last. */
  readonly next: string | undefined;
}

export type WatchEvent =
  | { readonly kind: "put"; readonly object: KubeObject }
  | { readonly kind: "delete"; readonly object: KubeObject }
  /** Nothing else has happened up to this version. */
  | { readonly kind: "bookmark"; readonly resourceVersion: string };

const unreadable = (what: string): PodnetError =>
  kubernetesError("KUBERNETES_FAILED", `Kubernetes' API server has answered with ${what}`, {
    hint: "See that the address in the kubeconfig is an API server's",
  });

/** Reads an object. Throws `KUBERNETES_FAILED`. */
export function readObject(json: unknown): KubeObject {
  const [name, uid, resourceVersion] = (["name", "uid", "resourceVersion"] as const).map((field) =>
    textOf(json, "metadata", field),
  );
  if (!name || !uid || !resourceVersion)
    throw unreadable("an object without name, uid or resourceVersion");
  return { name, uid, resourceVersion, json };
}

/** Reads a list's part. Throws `KUBERNETES_FAILED`. */
export function readPage(text: string): Page {
  const json = parseJson(text);
  const items = fieldOf(json, "items") ?? [];
  const resourceVersion = textOf(json, "metadata", "resourceVersion");
  // A watch from an empty version begins with what there is then, and misses what was before.
  if (!Array.isArray(items) || !resourceVersion) throw unreadable("something that is no list");
  const next = textOf(json, "metadata", "continue") ?? "";
  return { items: items.map(readObject), resourceVersion, next: next === "" ? undefined : next };
}

/**
 * Reads a line of a watch. Throws `KUBERNETES_FAILED`, and the error that the API server reports in
 * the watch: `KUBERNETES_EXPIRED` when it no longer has the changes.
 */
export function readEvent(line: string): WatchEvent {
  const json = parseJson(line);
  const object = fieldOf(json, "object");
  switch (fieldOf(json, "type")) {
    case "ADDED":
    case "MODIFIED":
      return { kind: "put", object: readObject(object) };
    case "DELETED":
      return { kind: "delete", object: readObject(object) };
    case "BOOKMARK": {
      const resourceVersion = textOf(object, "metadata", "resourceVersion");
      if (!resourceVersion) throw unreadable("a bookmark without a resourceVersion");
      return { kind: "bookmark", resourceVersion };
    }
    case "ERROR":
      throw statusError(object, 500, "continue a watch");
    default:
      throw unreadable("an event of a kind that a watch does not have");
  }
}
