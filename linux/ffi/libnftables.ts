/**
 * libnftables (`libnftables.so.1`, package libnftables1): the part of nft that reads its language
 * and talks to the kernel. Loaded when it is first wanted, for a host whose firewall is iptables
 * need not have it.
 */
import { promisify } from "node:util";
import koffi, { type KoffiFunc } from "koffi";

/** `struct nft_ctx *` */
export type Context = bigint | object;

export interface LibNftables {
  /** `struct nft_ctx *nft_ctx_new(uint32_t flags)` */
  readonly create: (flags: number) => Context | null;
  /** `void nft_ctx_free(struct nft_ctx *)` */
  readonly free: (context: Context) => void;
  /** `int nft_ctx_buffer_output(struct nft_ctx *)`: what would be printed is kept instead. */
  readonly bufferOutput: (context: Context) => number;
  /** `int nft_ctx_buffer_error(struct nft_ctx *)` */
  readonly bufferError: (context: Context) => number;
  /**
   * `const char *nft_ctx_get_output_buffer(struct nft_ctx *)`: what was kept since it was last
   * asked for.
   */
  readonly takeOutput: (context: Context) => string;
  /** `const char *nft_ctx_get_error_buffer(struct nft_ctx *)` */
  readonly takeError: (context: Context) => string;
  /** `void nft_ctx_output_set_flags(struct nft_ctx *, unsigned int)` */
  readonly setOutput: (context: Context, flags: number) => void;
  /** `int nft_run_cmd_from_buffer(struct nft_ctx *, const char *)` */
  readonly run: (context: Context, commands: string) => number;
  /** Runs commands on a thread of its own; the context must not be used before it resolves. */
  readonly runElsewhere: (context: Context, commands: string) => Promise<number>;
}

let loaded: LibNftables | undefined;

/** The library. Throws what koffi throws when it is not installed. */
export function libnftables(): LibNftables {
  loaded ??= load();
  return loaded;
}

function load(): LibNftables {
  const library = koffi.load("libnftables.so.1");
  const run = library.func("int nft_run_cmd_from_buffer(void *, const char *)") as KoffiFunc<
    LibNftables["run"]
  >;
  return {
    create: library.func("void *nft_ctx_new(uint32_t)") as LibNftables["create"],
    free: library.func("void nft_ctx_free(void *)") as LibNftables["free"],
    bufferOutput: library.func("int nft_ctx_buffer_output(void *)") as LibNftables["bufferOutput"],
    bufferError: library.func("int nft_ctx_buffer_error(void *)") as LibNftables["bufferError"],
    takeOutput: library.func(
      "const char *nft_ctx_get_output_buffer(void *)",
    ) as LibNftables["takeOutput"],
    takeError: library.func(
      "const char *nft_ctx_get_error_buffer(void *)",
    ) as LibNftables["takeError"],
    setOutput: library.func(
      "void nft_ctx_output_set_flags(void *, uint32_t)",
    ) as LibNftables["setOutput"],
    run,
    runElsewhere: promisify(run.async),
  };
}
