import type { Command } from "commander";
import { type Pod, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { portTable } from "../views/port-view.ts";

export function addPorts(program: Command, context: Context): void {
  addOutput(program.command("ports").description("show published ports, of one pod or of all"))
    .argument("[pod]", "name or id")
    .action(async (idOrName: string | undefined, options: OutputOptions) => {
      const { io } = context;
      const pods = await withPodnet(context, options, async (podnet, signal): Promise<Pod[]> => {
        if (idOrName === undefined) return (await podnet.pods.list({}, { signal })).pods;
        const { pod } = await podnet.pods.get({ idOrName }, { signal });
        return pod === undefined ? [] : [pod];
      });
      if (options.output === "table") io.stdout.write(portTable(pods));
      else {
        const items = pods.map((pod) => {
          const { id, name } = pod;
          return { id, name, ports: toPlain(PodSchema, pod)["ports"] ?? [] };
        });
        await printDocument(io, options.output, document("PortList", { items }));
      }
    });
}
