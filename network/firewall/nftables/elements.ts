import { type Owner, parseOwner } from "../../model/ownership.ts";
import { type Element, elementId } from "../../model/nftables-sets.ts";

/** The chain that an element leads to, if any. */
export const chainOf = ({ value }: Element): string | undefined =>
  value?.startsWith("jump ") === true ? value.slice("jump ".length) : undefined;

/** An owner of elements, with the mark they bear. */
export interface MarkedOwner extends Owner {
  readonly mark: string;
}

interface Property {
  /** Undefined for a mark that is not podnet's. */
  readonly owner: MarkedOwner | undefined;
  readonly elements: Map<string, Element>;
}

/** Elements by key and by owner. */
export class Elements {
  readonly #all = new Map<string, Element>();
  readonly #byOwner = new Map<string, Property>();
  /** By the link that the key begins with. */
  readonly #byLink = new Map<string, Set<string>>();

  get(id: string): Element | undefined {
    return this.#all.get(id);
  }

  /** Everybody of podnet's who has elements. */
  owners(): MarkedOwner[] {
    const owners: MarkedOwner[] = [];
    for (const { owner } of this.#byOwner.values()) if (owner !== undefined) owners.push(owner);
    return owners;
  }

  of(owner: string): Element[] {
    return [...(this.#byOwner.get(owner)?.elements.values() ?? [])];
  }

  /** The elements of all owners, and of none, whose key begins with the name of a link. */
  at(link: string): Element[] {
    return [...(this.#byLink.get(`"${link}"`) ?? [])].flatMap((id) => this.#all.get(id) ?? []);
  }

  all(): Element[] {
    return [...this.#all.values()];
  }

  set(element: Element): void {
    this.delete(element);
    const id = elementId(element);
    this.#all.set(id, element);
    const link = linkOf(element);
    if (link !== undefined) {
      const theirs = this.#byLink.get(link) ?? new Set();
      this.#byLink.set(link, theirs.add(id));
    }
    if (element.owner === undefined) return;
    let theirs = this.#byOwner.get(element.owner);
    if (theirs === undefined) {
      theirs = { owner: markedOwner(element.owner), elements: new Map() };
      this.#byOwner.set(element.owner, theirs);
    }
    theirs.elements.set(id, element);
  }

  /** Deletes the element with an equal key; absence is success. */
  delete(element: Element): void {
    const id = elementId(element);
    const found = this.#all.get(id);
    this.#all.delete(id);
    const link = linkOf(element);
    const others = link === undefined ? undefined : this.#byLink.get(link);
    others?.delete(id);
    if (link !== undefined && others?.size === 0) this.#byLink.delete(link);
    if (found?.owner === undefined) return;
    const theirs = this.#byOwner.get(found.owner);
    theirs?.elements.delete(id);
    if (theirs?.elements.size === 0) this.#byOwner.delete(found.owner);
  }

  replace(elements: readonly Element[]): void {
    this.#all.clear();
    this.#byOwner.clear();
    this.#byLink.clear();
    for (const element of elements) this.set(element);
  }
}

const linkOf = ({ key }: Element): string | undefined => /^"[^"]*"/.exec(key)?.[0];

function markedOwner(mark: string): MarkedOwner | undefined {
  const owner = parseOwner(mark);
  return owner === undefined ? undefined : { ...owner, mark };
}
