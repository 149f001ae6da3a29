import { perform, performAsync } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { closeAllOnExec } from "../processes/close-on-exec.ts";
import { type Context, type LibNftables, libnftables } from "../ffi/libnftables.ts";
import { ElementSocket } from "./element-socket.ts";
import type { ElementChange } from "./set-elements.ts";

// nftables/libnftables.h (1.0.6)
const NFT_CTX_DEFAULT = 0;
const NFT_CTX_OUTPUT_HANDLE = 1 << 3;
const NFT_CTX_OUTPUT_JSON = 1 << 4;
const NFT_CTX_OUTPUT_NUMERIC_ALL = (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10);

/**
 * As numbers, for names of protocols would be looked up in /etc/protocols, which a host need not
 * have.
 */
const asText = NFT_CTX_OUTPUT_NUMERIC_ALL;
const asJson = NFT_CTX_OUTPUT_JSON | NFT_CTX_OUTPUT_HANDLE | asText;

/**
 * nf_tables of the network namespace that the calling thread is in when this is opened, whatever it
 * is in later. Calls are made one at a time, in their order.
 */
export interface Nftables {
  /**
   * Commits commands of nft's language as one transaction: all of them or, when it throws
   * `FIREWALL_FAILED` with nft's message, none. `what` names the call for failpoints. Blocks this
   * thread for 0.1 ms per element.
   */
  commit(what: string, commands: string): Promise<void>;
  /**
   * Commits changes of a table's elements, `inet podnet`, as one transaction, without libnftables:
   * in a tenth of the time that it takes for one element. A few hundred at most, for they are sent
   * at once. Throws as `commit`; `details` has the element that was refused and `kernel`, the name
   * of the error (EEXIST, ENOENT).
   */
  change(what: string, table: string, changes: readonly ElementChange[]): Promise<void>;
  /**
   * nft's output as text, for one command with little output: `get element` has no JSON, and ends
   * the process when it is asked for more than 200 elements (1.0.6). Throws `FIREWALL_FAILED`.
   */
  get(what: string, command: string): Promise<string>;
  /**
   * nft's output, as JSON by default, for a command with much output: on a thread of its own, for
   * it takes 15 µs an element. As text, rules have their handles.
   */
  list(what: string, command: string, as?: "json" | "text"): Promise<string>;
  close(): void;
}

/**
 * Throws `FIREWALL_FAILED`: the library is missing (`details.errno` is `ENOENT`), or cannot be set
 * up.
 */
export function openNftables(): Nftables {
  return new OpenNftables(library());
}

/** Throws `FIREWALL_FAILED` unless the library can be loaded. */
export const requireNftables = (): void => void library();

function library(): LibNftables {
  try {
    return perform("file", "load libnftables", libnftables);
  } catch (cause) {
    throw new PodnetError("FIREWALL_FAILED", "libnftables.so.1 cannot be loaded", {
      hint: 'Install it (apt-get install libnftables1), or set firewall = "iptables"',
      details: { errno: "ENOENT" },
      cause,
    });
  }
}

function opened(library: LibNftables): { context: Context; elements: ElementSocket } {
  let cause: unknown;
  let elements: ElementSocket | undefined;
  try {
    elements = new ElementSocket();
    const context = perform("socket", "nftables", () => library.create(NFT_CTX_DEFAULT));
    // (It ends the process when the kernel gives it no socket; null is for what memory is lacking.)
    if (context !== null) return { context, elements };
  } catch (error) {
    cause = error;
  }
  elements?.close();
  throw new PodnetError("FIREWALL_FAILED", "libnftables cannot be set up", {
    hint: "Look at the memory and the open files that podnetd has",
    cause,
  });
}

class OpenNftables implements Nftables {
  readonly #library: LibNftables;
  #context: Context | undefined;
  readonly #elements: ElementSocket;
  /** Ends with the last call: a context serves one at a time. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(library: LibNftables) {
    this.#library = library;
    const { context, elements } = opened(library);
    // Its socket would be inherited by every QEMU.
    closeAllOnExec();
    this.#context = context;
    this.#elements = elements;
    library.bufferOutput(context);
    library.bufferError(context);
  }

  async commit(what: string, commands: string): Promise<void> {
    await this.#run(what, commands, NFT_CTX_DEFAULT);
  }

  async change(what: string, table: string, changes: readonly ElementChange[]): Promise<void> {
    await this.#inTurn(what, () =>
      perform("netlink", `nftables ${what}`, () => this.#elements.change(what, table, changes)),
    );
  }

  get(what: string, command: string): Promise<string> {
    return this.#run(what, command, asText);
  }

  list(what: string, command: string, as: "json" | "text" = "json"): Promise<string> {
    const output = as === "json" ? asJson : asText | NFT_CTX_OUTPUT_HANDLE;
    return this.#inTurn(what, (context) =>
      performAsync("netlink", `nftables ${what}`, async () => {
        this.#library.setOutput(context, output);
        return this.#result(what, context, await this.#library.runElsewhere(context, command));
      }),
    );
  }

  close(): void {
    if (this.#context !== undefined) this.#library.free(this.#context);
    this.#context = undefined;
    this.#elements.close();
  }

  #run(what: string, commands: string, flags: number): Promise<string> {
    return this.#inTurn(what, (context) =>
      perform("netlink", `nftables ${what}`, () => {
        this.#library.setOutput(context, flags);
        return this.#result(what, context, this.#library.run(context, commands));
      }),
    );
  }

  #result(what: string, context: Context, result: number): string {
    // Both are emptied by asking.
    const output = this.#library.takeOutput(context);
    const said = this.#library.takeError(context);
    if (result !== 0) throw failed(what, said);
    return output;
  }

  #inTurn<T>(what: string, call: (context: Context) => T | Promise<T>): Promise<T> {
    const result = this.#last.then(async () => {
      if (this.#context === undefined) throw failed(what, "it has been closed");
      try {
        return await call(this.#context);
      } catch (error) {
        if (isPodnetError(error, "FIREWALL_FAILED")) throw error;
        throw failed(what, error instanceof Error ? error.message : "", error);
      }
    });
    this.#last = result.catch(() => {});
    return result;
  }
}

/** nft says what is wrong in the first line, and shows where in those that follow. */
function failed(what: string, said: string, cause?: unknown): PodnetError {
  const [first = ""] = said.split("\n");
  const reason = first.replace(/^.*?Error: /, "").slice(0, 200);
  return new PodnetError("FIREWALL_FAILED", `nftables, ${what}: ${reason}`, {
    hint: hintFor(said),
    details: { nft: said.slice(0, 4096) },
    ...(cause === undefined ? {} : { cause }),
  });
}

function hintFor(said: string): string {
  if (said.includes("Operation not permitted"))
    return "Run podnetd as root, or give it CAP_NET_ADMIN";
  if (said.includes("not supported"))
    return 'The kernel lacks a part of nf_tables; set firewall = "iptables"';
  return "See what nft said in the details; nft list ruleset shows what there is";
}
