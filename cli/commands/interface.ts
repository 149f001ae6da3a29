import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import { type Plan, PlanSchema, type Pod, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { UpdateInterfaceRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { FlagWriter, type GivenFlags } from "../flags/given.ts";
import { interfaceFrom, interfaceHelp, routeFrom } from "../flags/interface-flags.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { collect, parseCount } from "../parse.ts";
import { planText } from "../views/plan-view.ts";
import { interfaceTable } from "../views/pod-view.ts";
import { usage } from "../usage.ts";

interface PlanOptions extends OutputOptions {
  readonly plan?: boolean;
}

interface AddOptions extends PlanOptions {
  readonly route?: readonly string[];
}

interface SetOptions extends PlanOptions {
  readonly address?: readonly string[];
  readonly mtu?: string;
  readonly gateway?: string;
  readonly metric?: string;
  readonly route?: readonly string[];
}

const addExamples = `
The parts of an interface: ${interfaceHelp}

Examples:
  podnet interface add web                               the next free address of the default network
  podnet interface add web blue,address=10.20.0.9        on network blue
  podnet interface add web bridge=br0,address=10.0.0.9/24,vlan=7
  podnet interface add web tap=vpn0,kept,address=none    a foreign tap, which stays
  podnet interface add web loopback,address=10.9.0.1/32  on the guest's own lo`;

const setExamples = `
What is not named stays as it is; none empties it.

Examples:
  podnet interface set web eth1 --mtu 1400
  podnet interface set web eth1 --address 10.20.0.9 --address fd00:20::9
  podnet interface set web eth1 --gateway 10.20.0.1 --metric 50
  podnet interface set web eth1 --route 172.16.0.0/12,via=10.20.0.1`;

/** The commands about the interfaces of a running pod. */
export function addInterface(program: Command, context: Context): void {
  const group = program
    .command("interface")
    .alias("interfaces")
    .description("add, change, remove and list interfaces of a running pod");
  addList(group, context);
  addAdd(group, context);
  addSet(group, context);
  addRemove(group, context);
}

const planFlag = (command: Command): Command =>
  command.option("--plan", "show what would be done, and do nothing");

function addList(group: Command, context: Context): void {
  addOutput(group.command("list").description("list a pod's interfaces"))
    .argument("<pod>", "name or id")
    .action(async (idOrName: string, options: OutputOptions) => {
      const { pod } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.get({ idOrName }, { signal }),
      );
      await answer(context, options, pod);
    });
}

function addAdd(group: Command, context: Context): void {
  planFlag(addOutput(group.command("add").description("add an interface to a running pod")))
    .argument("<pod>", "name or id")
    .argument("[parts]", "the interface; an automatic one unless given")
    .option(
      "--route <parts>",
      "a route by it: DESTINATION,via=GATEWAY,metric=…; may be repeated",
      collect,
    )
    .addHelpText("after", addExamples)
    .action(async (idOrName: string, parts: string | undefined, options: AddOptions) => {
      const routes: ReturnType<typeof routeFrom>[] = [];
      new FlagWriter(options, context.given).append("route", "routes", routes, (text) =>
        routeFrom("--route", text),
      );
      const request = {
        idOrName,
        interface: interfaceFrom("interface", parts ?? ""),
        routes,
        planOnly: options.plan === true,
      };
      const { pod, plan } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.addInterface(request, { signal }),
      );
      await answer(context, options, plan ?? pod);
    });
}

function addSet(group: Command, context: Context): void {
  planFlag(addOutput(group.command("set").description("change an interface of a running pod")))
    .argument("<pod>", "name or id")
    .argument("<name>", "the interface's name in the guest")
    .option("--address <ip[/len]>", "all its addresses; may be repeated; none", collect)
    .option("--mtu <bytes>", "its MTU")
    .option("--gateway <ip>", "default route by this gateway; none")
    .option("--metric <number>", "metric of its default route; 0 is the kernel's choice")
    .option(
      "--route <parts>",
      "all routes by it: DESTINATION,via=GATEWAY,metric=…; may be repeated; none",
      collect,
    )
    .addHelpText("after", setExamples)
    .action(async (idOrName: string, guestName: string, options: SetOptions) => {
      const request = {
        ...changeOf(options, context.given),
        idOrName,
        guestName,
        planOnly: options.plan === true,
      };
      const { pod, plan } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.updateInterface(request, { signal }),
      );
      await answer(context, options, plan ?? pod);
    });
}

type Change = MessageInitShape<typeof UpdateInterfaceRequestSchema>;

/** What the flags change of an interface. */
function changeOf(options: SetOptions, given: GivenFlags): Change {
  const { address, mtu, gateway, metric, route } = options;
  if ([address, mtu, gateway, metric, route].every((flag) => flag === undefined))
    throw usage(
      "Nothing is to be changed",
      "Give --address, --mtu, --gateway, --metric or --route",
    );
  const change: Change = {};
  const flags = new FlagWriter(options, given);
  flags.put("address", "addresses", (addresses) => {
    change.addresses = { addresses: [...addresses] };
  });
  flags.put("mtu", "mtu", (text) => {
    change.mtu = parseCount("--mtu", text);
  });
  flags.put("gateway", "gateway", (text) => {
    change.gateway = text === "none" ? "" : text;
  });
  flags.put("metric", "metric", (text) => {
    change.metric = parseCount("--metric", text);
  });
  flags.put("route", "routes", (texts) => {
    const meant = texts.length === 1 && texts[0] === "none" ? [] : texts;
    change.routes = { routes: meant.map((text) => routeFrom("--route", text)) };
  });
  return change;
}

function addRemove(group: Command, context: Context): void {
  const remove = group.command("remove").alias("delete");
  planFlag(addOutput(remove.description("remove an interface of a running pod")))
    .argument("<pod>", "name or id")
    .argument("<name>", "the interface's name in the guest")
    .action(async (idOrName: string, guestName: string, options: PlanOptions) => {
      const request = { idOrName, guestName, planOnly: options.plan === true };
      const { pod, plan } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.removeInterface(request, { signal }),
      );
      await answer(context, options, plan ?? pod);
    });
}

async function answer(
  { io }: Context,
  { output }: OutputOptions,
  shown: Plan | Pod | undefined,
): Promise<void> {
  if (shown === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  const isPlan = shown.$typeName === "podnet.v1.Plan";
  if (output === "table")
    io.stdout.write(isPlan ? planText(io.stdout, shown) : interfaceTable(shown));
  else if (isPlan) await printDocument(io, output, document("Plan", toPlain(PlanSchema, shown)));
  else await printDocument(io, output, document("Pod", toPlain(PodSchema, shown)));
}
