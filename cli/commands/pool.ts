import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import type { Podnet } from "../../api/client.ts";
import {
  type ListPoolsResponse,
  type Pool,
  PoolSchema,
} from "../../api/gen/podnet/v1/node_service_pb.ts";
import {
  addOutput,
  type CommonOptions,
  type Context,
  type OutputOptions,
  withPodnet,
} from "../context.ts";
import type { Output } from "../io.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { sinceText, ticking, whole } from "../views/ticking.ts";
import { count, harmless, size, styled, printTable } from "../views/text.ts";

const about = `
Machines of a pool run already and wait for a pod: factory = "pool" in podnetd's configuration.
CLAIMED counts the creates that took one, MISSED those that found the pool empty, since podnetd started.`;

/** `podnet pool`: the machines that wait for a pod. */
export function addPool(program: Command, context: Context): void {
  const group = program
    .command("pool")
    .description("show, fill and drain the pools of machines that wait for a pod");
  addPoolList(group, context);
  addPoolFill(group, context);
  addPoolDrain(group, context);
}

function addPoolList(group: Command, context: Context): void {
  addOutput(
    group
      .command("list", { isDefault: true })
      .description("list the pools, one for each size of machine"),
  )
    .addHelpText("after", about)
    .action(async (options: OutputOptions) => {
      const { io } = context;
      const { output } = options;
      const { pools, drained, unlike } = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.listPools({}, { signal }),
      );
      if (output !== "table") {
        const items = pools.map((pool) => toPlain(PoolSchema, pool));
        const list = document("PoolList", { drained, unlike: unlike.toString(), items });
        await printDocument(io, output, list);
        return;
      }
      const heading = "IMAGE VCPU MEMORY READY SIZE HOST-MEMORY CLAIMED MISSED".split(" ");
      printTable(io.stdout, heading, pools.map(rowOf));
      if (unlike > 0n)
        io.stderr.write(`Creates that asked for a machine like none of these: ${unlike}\n`);
      if (drained) io.stderr.write("The pools are drained; podnet pool fill fills them\n");
      for (const { error } of pools) {
        if (error === undefined) continue;
        const why = `${harmless(error.message)} (${harmless(error.code)})`;
        io.stderr.write(`${styled(io.stderr, "red", "Failed to make a machine")}: ${why}\n`);
      }
    });
}

const rowOf = (pool: Pool): string[] => [
  harmless(pool.image || pool.initrd || pool.kernel) || "-",
  `${pool.vcpu}`,
  `${pool.memoryMib}MiB`,
  `${pool.ready}`,
  `${pool.size}`,
  size(Number(pool.memoryBytes)),
  `${pool.claimed}`,
  `${pool.missed}`,
];

function addPoolFill(group: Command, context: Context): void {
  group
    .command("fill")
    .description("fill the pools now, also after a drain, and wait until they are full")
    .action(async (options: CommonOptions) => {
      const { pools } = await withPodnet(context, options, (podnet, signal) =>
        fill(context.io.stderr, podnet, signal),
      );
      const ready = pools.reduce((sum, pool) => sum + pool.ready, 0);
      context.io.stdout.write(`${count(ready, "machine")} wait for a pod\n`);
    });
}

/** Between two looks at how full the pools are, milliseconds. */
const lookMs = 500;

/** Fills the pools, and shows on a terminal how far they are. */
async function fill(
  out: Output,
  podnet: Podnet,
  signal: AbortSignal,
): Promise<Pick<ListPoolsResponse, "pools">> {
  const filled = podnet.node.fillPools({}, { signal });
  if (out.isTTY !== true) return await filled;
  const over = new AbortController();
  const end = (): void => over.abort();
  filled.then(end, end);
  const looks = AbortSignal.any([signal, over.signal]);
  const rate = new FillRate(performance.now());
  using line = ticking(out, () => rate.text(performance.now()));
  while (!looks.aborted) {
    // What is wrong with podnetd the fill says.
    const now = await podnet.node.listPools({}, { signal: looks }).catch(() => undefined);
    if (now !== undefined) rate.look(now.pools);
    line.draw();
    await delay(lookMs, undefined, { signal: looks }).catch(() => {});
  }
  return await filled;
}

/** How far a fill is, and how long it takes as it looks. */
export class FillRate {
  readonly #beganMs: number;
  #from: number | undefined;
  #ready = 0;
  #size = 0;

  constructor(beganMs: number) {
    this.#beganMs = beganMs;
  }

  look(pools: readonly Pick<Pool, "ready" | "size">[]): void {
    this.#ready = pools.reduce((sum, { ready }) => sum + ready, 0);
    this.#size = pools.reduce((sum, { size: wanted }) => sum + wanted, 0);
    this.#from ??= this.#ready;
  }

  text(nowMs: number): string {
    if (this.#from === undefined) return "";
    const spentMs = nowMs - this.#beganMs;
    const made = this.#ready - this.#from;
    const leftMs = (spentMs * Math.max(0, this.#size - this.#ready)) / Math.max(made, 1);
    const left = made > 0 ? `, about ${whole(leftMs)} left` : "";
    return `${this.#ready} of ${count(this.#size, "machine")}${sinceText(spentMs)}${left} …`;
  }
}

function addPoolDrain(group: Command, context: Context): void {
  group
    .command("drain")
    .description("end the machines that wait; the pools stay empty until they are filled")
    .addHelpText("after", "\npodnetd fills the pools again when it starts.")
    .action(async (options: CommonOptions) => {
      const { ended } = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.drainPools({}, { signal }),
      );
      context.io.stdout.write(`Ended ${count(ended, "machine")}\n`);
    });
}
