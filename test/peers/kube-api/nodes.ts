import { randomUUID } from "node:crypto";
import { invalidIn, merged, type NodeJson, wrongIn } from "./schema.ts";

/** A part of a Node, as it is sent. */
export interface NodePart {
  readonly metadata?: Partial<NodeJson["metadata"]>;
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly status?: NodeJson["status"];
}

export interface Change {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly version: number;
  readonly object: NodeJson;
}

/** An answer that is a failure, with the reason that Kubernetes gives it. */
export class Refused extends Error {
  readonly code: number;
  readonly reason: string;

  constructor(code: number, reason: string, message: string) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

/** Nodes with their history, versions and rules: what is behind an API server. */
export class Nodes {
  readonly #nodes = new Map<string, NodeJson>();
  #history: Change[] = [];
  /** Changes up to here are forgotten. */
  #compacted = 0;
  #version = 1000;
  /** Notified of each change. */
  readonly watchers = new Set<() => void>();

  get version(): number {
    return this.#version;
  }

  get compacted(): number {
    return this.#compacted;
  }

  get(name: string): NodeJson | undefined {
    return this.#nodes.get(name);
  }

  all(): NodeJson[] {
    return [...this.#nodes.values()].toSorted((a, b) =>
      a.metadata.name < b.metadata.name ? -1 : 1,
    );
  }

  /** Makes a Node, as a kubelet and the controller of podCIDRs do. */
  create(name: string, more: NodePart = {}): NodeJson {
    const wrong = wrongIn(more);
    if (wrong.length > 0 || !/^[a-z0-9][a-z0-9.-]*$/.test(name))
      throw new Refused(400, "BadRequest", `strict decoding error: ${name} ${wrong.join(", ")}`);
    if (this.#nodes.has(name)) throw new Refused(409, "AlreadyExists", `nodes "${name}" exists`);
    const created = `${new Date().toISOString().slice(0, 19)}Z`;
    return this.#store("ADDED", {
      apiVersion: "v1",
      kind: "Node",
      ...more,
      metadata: {
        name,
        uid: randomUUID(),
        resourceVersion: "",
        creationTimestamp: created,
        ...more.metadata,
      },
      spec: more.spec ?? {},
      status: more.status ?? {},
    });
  }

  /** Changes a Node. */
  patch(name: string, patch: NodePart, subresource?: "status"): NodeJson {
    const wrong = wrongIn(patch);
    if (wrong.length > 0)
      throw new Refused(400, "BadRequest", `strict decoding error: ${wrong.join(", ")}`);
    const before = this.#nodes.get(name);
    if (before === undefined) throw new Refused(404, "NotFound", `nodes "${name}" not found`);
    const { resourceVersion, uid } = patch.metadata ?? {};
    const conflict = (why: string): Refused =>
      new Refused(409, "Conflict", `Operation cannot be fulfilled on nodes "${name}": ${why}`);
    if (uid !== undefined && uid !== before.metadata.uid)
      throw conflict("Precondition failed: UID in precondition does not match");
    if (resourceVersion !== undefined && resourceVersion !== before.metadata.resourceVersion)
      throw conflict(
        "the object has been modified; please apply your changes to the latest version",
      );
    // A server leaves the other part as it is; whoever sends one is mistaken.
    const other = subresource === "status" ? "spec" : "status";
    if (patch[other] !== undefined)
      throw new Refused(422, "Invalid", `${other} cannot be changed at this path`);
    const after = merged(before, patch) as NodeJson;
    const invalid = invalidIn(after);
    if (invalid.length > 0)
      throw new Refused(422, "Invalid", `Node "${name}" is invalid: ${invalid.join(", ")}`);
    if (JSON.stringify(after) === JSON.stringify(before)) return before;
    return this.#store("MODIFIED", after);
  }

  /** Sets some of flannel's annotations, as another program with the right to do so. */
  annotate(name: string, annotations: Readonly<Record<string, string | null>>): NodeJson {
    return this.patch(name, {
      metadata: {
        annotations: Object.fromEntries(
          Object.entries(annotations).map(([key, value]) => [
            `flannel.alpha.coreos.com/${key}`,
            // (null takes it away.)
            value as string,
          ]),
        ),
      },
    });
  }

  /** flannel's annotations of a Node. */
  annotations(name: string): Record<string, string> {
    const all = this.#nodes.get(name)?.metadata.annotations ?? {};
    const prefix = "flannel.alpha.coreos.com/";
    return Object.fromEntries(
      Object.entries(all).flatMap(([key, value]) =>
        key.startsWith(prefix) ? [[key.slice(prefix.length), value]] : [],
      ),
    );
  }

  delete(name: string): void {
    const before = this.#nodes.get(name);
    if (before === undefined) return;
    this.#nodes.delete(name);
    this.#record("DELETED", before);
  }

  /** Forgets all changes. */
  compact(): void {
    this.#compacted = this.#version;
    this.#history = [];
  }

  /** Puts the data back to an older copy: versions begin again below those that were given out. */
  restore(): void {
    this.#version -= 500;
    this.#history = [];
    this.#compacted = 0;
  }

  /** Changes after a version, in order. */
  since(version: number): readonly Change[] {
    return this.#history.filter((change) => change.version > version);
  }

  #store(type: Change["type"], object: NodeJson): NodeJson {
    const { name } = object.metadata;
    const stored = this.#record(type, object);
    this.#nodes.set(name, stored);
    return stored;
  }

  #record(type: Change["type"], object: NodeJson): NodeJson {
    const version = ++this.#version;
    const metadata = { ...object.metadata, resourceVersion: String(version) };
    const stored = { ...object, metadata };
    this.#history.push({ type, version, object: stored });
    for (const notify of this.watchers) notify();
    return stored;
  }
}
