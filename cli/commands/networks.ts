import type { Command } from "commander";
import { type Network, NetworkSchema } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { table } from "../text.ts";

const rowsOf = (network: Network): string[][] =>
  network.subnets.map((subnet, i) => [
    i === 0 ? network.name : "",
    i === 0 ? network.bridge : "",
    subnet.cidr,
    subnet.gateway,
    `${network.mtu}`,
    subnet.used,
    subnet.free,
    subnet.reserved,
    subnet.quarantined,
  ]);

export function addNetworks(program: Command, context: Context): void {
  addOutput(program.command("networks").description("list networks and how full their pools are"))
    .argument("[name]", "this one alone")
    .action(async (name: string | undefined, options: OutputOptions) => {
      const { io } = context;
      const networks = await withPodnet(context, options, async (podnet, signal) => {
        if (name === undefined) return (await podnet.networks.list({}, { signal })).networks;
        const { network } = await podnet.networks.get({ name }, { signal });
        return network === undefined ? [] : [network];
      });
      if (options.output !== "table") {
        const items = networks.map((network) => toPlain(NetworkSchema, network));
        await printDocument(io, options.output, document("NetworkList", { items }));
        return;
      }
      const heading = [
        "NAME",
        "BRIDGE",
        "SUBNET",
        "GATEWAY",
        "MTU",
        "USED",
        "FREE",
        "RESERVED",
        "QUARANTINED",
      ];
      io.stdout.write(table(heading, networks.flatMap(rowsOf)));
    });
}
