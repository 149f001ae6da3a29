import { abortable } from "../../core/aborting.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Template } from "./template.ts";

/** Identifies a template. */
export interface TemplateKey {
  /** The machine's command line, with the paths of its files. */
  readonly machine: string;
  /** Which files they are at this moment. */
  readonly files: string;
}

interface Entry {
  readonly key: TemplateKey;
  readonly built: Promise<Template>;
  /** Ends the build. */
  readonly stop: AbortController;
  /** Once it is built. */
  template: Template | undefined;
  /** Creates that wait for it, or clone from it now. */
  users: number;
  lastUsed: number;
  /** No longer found: freed by its last user. */
  retired: boolean;
}

/**
 * The templates of this process, each built once, on its first use, and shared by concurrent users.
 * They live in memory files of this process alone and end with it; clones keep what they have
 * mapped.
 */
export class Templates implements AsyncDisposable {
  readonly #limit: number;
  readonly #entries = new Map<string, Entry>();
  /** Builds and disposals under way, each with a promise of its end. */
  readonly #builds = new Map<Entry, Promise<void>>();
  #uses = 0;
  #closed = false;

  /** Keeps `limit` templates, those used last. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Calls `body` with the key's template, which is not freed before `body` has ended. Calls `build`
   * when there is no template, or only one of other files. Throws what `build` throws, with a note
   * that it is about the template; the next use builds again.
   */
  async use<T>(
    key: TemplateKey,
    build: (signal: AbortSignal) => Promise<Template>,
    signal: AbortSignal,
    body: (template: Template) => Promise<T>,
  ): Promise<T> {
    if (this.#closed) throw ending();
    const entry = this.#entryFor(key, build);
    entry.users++;
    entry.lastUsed = ++this.#uses;
    try {
      return await body(await abortable(entry.built, signal, "Waiting for the template"));
    } finally {
      entry.users--;
      // A build without waiting users is cancelled.
      if (entry.users === 0 && entry.template === undefined) this.#retire(entry, unwanted());
      else this.#freeIfDone(entry);
    }
  }

  /** Cancels builds and frees unused templates. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    for (const entry of [...this.#entries.values(), ...this.#builds.keys()])
      this.#retire(entry, ending());
    await Promise.all(this.#builds.values());
  }

  #entryFor(key: TemplateKey, build: (signal: AbortSignal) => Promise<Template>): Entry {
    const there = this.#entries.get(key.machine);
    if (there !== undefined && there.key.files === key.files) return there;
    // Users that wait for the template of the old files still get it.
    if (there !== undefined) this.#forget(there);
    const stop = new AbortController();
    const built = build(stop.signal).catch((thrown: unknown) => {
      throw ofTemplate(thrown);
    });
    const entry: Entry = {
      key,
      built,
      stop,
      template: undefined,
      users: 0,
      lastUsed: 0,
      retired: false,
    };
    this.#entries.set(key.machine, entry);
    const done = built.then(
      (template) => {
        entry.template = template;
        this.#bound();
        this.#freeIfDone(entry);
      },
      (error: PodnetError) => this.#retire(entry, error),
    );
    const over = done.finally(() => this.#builds.delete(entry));
    this.#builds.set(entry, over);
    return entry;
  }

  /** Lets those go that were used longest ago. */
  #bound(): void {
    const built = [...this.#entries.values()].filter(({ template }) => template !== undefined);
    const newest = built.toSorted((a, b) => b.lastUsed - a.lastUsed);
    for (const entry of newest.slice(this.#limit)) this.#forget(entry);
  }

  /** Stops offering the template, and cancels its build if it still runs. */
  #retire(entry: Entry, why: PodnetError): void {
    entry.stop.abort(why);
    this.#forget(entry);
  }

  #forget(entry: Entry): void {
    if (this.#entries.get(entry.key.machine) === entry) this.#entries.delete(entry.key.machine);
    entry.retired = true;
    this.#freeIfDone(entry);
  }

  #freeIfDone(entry: Entry): void {
    if (entry.retired && entry.users === 0) entry.template?.[Symbol.dispose]();
  }
}

const ending = (): PodnetError => new PodnetError("CANCELLED", "podnetd is ending");
const unwanted = (): PodnetError =>
  new PodnetError("CANCELLED", "The request for the template was cancelled");

/** Adds to a failure that it is about the template. A cancellation stays unchanged. */
function ofTemplate(thrown: unknown): PodnetError {
  const error = toPodnetError(thrown);
  if (error.code === "CANCELLED") return error;
  const { code, message, hint, field, details } = error;
  return new PodnetError(code, `No template could be made: ${message}`, {
    hint: hint ?? "Create the pod with --factory cold, or look at what its guest said",
    ...(field === undefined ? {} : { field }),
    details,
    cause: error,
  });
}
