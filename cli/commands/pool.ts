import type { Command } from "commander";
import { type Pool, PoolSchema } from "../../api/gen/podnet/v1/node_service_pb.ts";
import {
  addOutput,
  type CommonOptions,
  type Context,
  type OutputOptions,
  withPodnet,
} from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { count, harmless, size, styled, table } from "../views/text.ts";

const about = `
Machines of a pool run already and wait for a pod: factory = "pool" in podnetd's configuration.
CLAIMED counts creates that took one, EMPTY and UNLIKE creates that found none: the pool was empty, or they asked for another machine.
The counts begin when podnetd starts.`;

/** `podnet pool`: the machines that wait for a pod. */
export function addPool(program: Command, context: Context): void {
  const group = program
    .command("pool")
    .description("show, fill and drain the pool of machines that wait for a pod");
  addPoolList(group, context);
  addPoolFill(group, context);
  addPoolDrain(group, context);
}

function addPoolList(group: Command, context: Context): void {
  addOutput(group.command("list").description("list the pools"))
    .addHelpText("after", about)
    .action(async (options: OutputOptions) => {
      const { io } = context;
      const { pools } = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.listPools({}, { signal }),
      );
      if (options.output !== "table") {
        const items = pools.map((pool) => toPlain(PoolSchema, pool));
        await printDocument(io, options.output, document("PoolList", { items }));
        return;
      }
      const heading = "IMAGE VCPU MEMORY READY SIZE HOST-MEMORY CLAIMED EMPTY UNLIKE".split(" ");
      io.stdout.write(table(heading, pools.map(rowOf)));
      for (const { drained, error } of pools) {
        if (drained) io.stderr.write("The pool is drained; podnet pool fill fills it\n");
        if (error !== undefined) {
          const why = `${harmless(error.code)}: ${harmless(error.message)}`;
          io.stderr.write(`${styled(io.stderr, "red", "no machine could be made")}: ${why}\n`);
        }
      }
    });
}

const rowOf = (pool: Pool): string[] => [
  harmless(pool.initrd || pool.kernel) || "-",
  `${pool.vcpu}`,
  `${pool.memoryMib}MiB`,
  `${pool.ready}`,
  `${pool.size}`,
  size(Number(pool.memoryBytes)),
  `${pool.claimed}`,
  `${pool.missedEmpty}`,
  `${pool.missedUnlike}`,
];

function addPoolFill(group: Command, context: Context): void {
  group
    .command("fill")
    .description("fill the pool now, also after a drain, and wait until it is full")
    .action(async (options: CommonOptions) => {
      const { pool } = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.fillPool({}, { signal }),
      );
      context.io.stdout.write(`${count(pool?.ready ?? 0, "machine")} wait for a pod\n`);
    });
}

function addPoolDrain(group: Command, context: Context): void {
  group
    .command("drain")
    .description("end the machines that wait; the pool stays empty until it is filled")
    .addHelpText("after", "\npodnetd fills the pool again when it starts.")
    .action(async (options: CommonOptions) => {
      const { ended } = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.drainPool({}, { signal }),
      );
      context.io.stdout.write(`Ended ${count(ended, "machine")}\n`);
    });
}
