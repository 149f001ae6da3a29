import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { guard, guarded } from "../../core/guard.ts";
import { configOrTrouble, type OverlayConfig } from "../flannel/config.ts";

export interface NetConfParts {
  /** Reads the file; undefined if it is not there. Its errors are reported and retried. */
  readonly read: () => Promise<string | undefined>;
  /** Returns the reason why a configuration cannot be used on this host. */
  readonly refuse: (config: OverlayConfig) => Promise<PodnetError | undefined>;
  /** Called with each configuration that can be used. */
  readonly onConfig: (config: OverlayConfig) => void;
  /** Called when `trouble` has changed. */
  readonly onTrouble: () => void;
  /** The time between two looks, milliseconds. Default: ten seconds. */
  readonly everyMs?: number;
}

/**
 * The overlay's configuration in a file, `net-conf.json`, which is looked at from time to time: a
 * ConfigMap's files are replaced. One that is gone, broken or refused leaves the last good one in
 * force.
 */
export class NetConf implements AsyncDisposable {
  readonly #parts: NetConfParts;
  readonly #timer: NodeJS.Timeout;
  #text: string | undefined;
  #trouble: "missing" | PodnetError | undefined = "missing";
  #looking: Promise<void>;
  #over = false;

  /** Begins to look. */
  constructor(parts: NetConfParts) {
    this.#parts = parts;
    this.#looking = guard("kubernetes", () => this.#look());
    this.#timer = setInterval(
      guarded("kubernetes", () => {
        this.#looking = this.#looking.then(() => guard("kubernetes", () => this.#look()));
      }),
      parts.everyMs ?? 10_000,
    ).unref();
  }

  /** Why the file cannot be used as it is now. */
  get trouble(): "missing" | PodnetError | undefined {
    return this.#trouble;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    clearInterval(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    if (this.#over) return;
    const { refuse, onConfig, onTrouble, read } = this.#parts;
    const before = this.#trouble;
    const { text, config } = await this.#read(read, refuse);
    if (this.#over) return;
    if (config !== undefined && text !== this.#text) {
      this.#text = text;
      onConfig(config);
    }
    if (troubleText(before) !== troubleText(this.#trouble)) onTrouble();
  }

  async #read(
    read: NetConfParts["read"],
    refuse: NetConfParts["refuse"],
  ): Promise<{ readonly text?: string; readonly config?: OverlayConfig }> {
    try {
      const text = await read();
      this.#trouble = "missing";
      if (text === undefined) return {};
      const config = configOrTrouble(text);
      this.#trouble = config instanceof PodnetError ? config : await refuse(config);
      return config instanceof PodnetError || this.#trouble !== undefined ? {} : { text, config };
    } catch (thrown) {
      this.#trouble = toPodnetError(thrown);
      return {};
    }
  }
}

const troubleText = (trouble: NetConf["trouble"]): string | undefined =>
  trouble instanceof PodnetError ? trouble.message : trouble;
