import { type Element, elementId } from "./element.ts";

/** Elements by key and by owner. */
export class Elements {
  readonly #all = new Map<string, Element>();
  readonly #byOwner = new Map<string, Map<string, Element>>();

  get(id: string): Element | undefined {
    return this.#all.get(id);
  }

  /** Marks of everybody who has one; elements without a mark are nobody's. */
  owners(): string[] {
    return [...this.#byOwner.keys()];
  }

  of(owner: string): Element[] {
    return [...(this.#byOwner.get(owner)?.values() ?? [])];
  }

  all(): Element[] {
    return [...this.#all.values()];
  }

  set(element: Element): void {
    this.delete(element);
    const id = elementId(element);
    this.#all.set(id, element);
    if (element.owner === undefined) return;
    const theirs = this.#byOwner.get(element.owner) ?? new Map<string, Element>();
    this.#byOwner.set(element.owner, theirs);
    theirs.set(id, element);
  }

  /** What has the same key goes; absent is success. */
  delete(element: Element): void {
    const id = elementId(element);
    const found = this.#all.get(id);
    this.#all.delete(id);
    if (found?.owner === undefined) return;
    const theirs = this.#byOwner.get(found.owner);
    theirs?.delete(id);
    if (theirs?.size === 0) this.#byOwner.delete(found.owner);
  }

  replace(elements: readonly Element[]): void {
    this.#all.clear();
    this.#byOwner.clear();
    for (const element of elements) this.set(element);
  }
}
