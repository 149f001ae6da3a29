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
        podnet.node.fillPools({}, { signal }),
      );
      const ready = pools.reduce((sum, pool) => sum + pool.ready, 0);
      context.io.stdout.write(`${count(ready, "machine")} wait for a pod\n`);
    });
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
