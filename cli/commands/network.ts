import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import {
  type Network,
  NetworkSchema,
  SubnetSpecSchema,
} from "../../api/gen/podnet/v1/network_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { withFreeSubnet } from "../free-subnet.ts";
import { limitsText } from "../flags/limit-flags.ts";
import {
  addNetworkFlags,
  type NetworkFlags,
  refuseNothing,
  refuseWithoutSubnet,
  specOf,
  updatedSpec,
} from "../flags/network-flags.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { amount, harmless, printTable } from "../views/text.ts";

interface PlanOptions extends OutputOptions {
  readonly plan?: boolean;
}

interface ChangeOptions extends NetworkFlags, PlanOptions {
  readonly force?: boolean;
}

/** The result of a change: a network, or the lines of a plan. */
interface Outcome {
  readonly network?: Network | undefined;
  readonly plan: readonly string[];
}

const createExamples = `
Without --cidr it gets an IPv4 subnet that is free on this host.

Examples:
  podnet network create green
  podnet network create blue --cidr 10.20.0.0/24
  podnet network create dual --cidr 10.21.0.0/24 --cidr fd00:21::/64
  podnet network create lab --cidr 10.22.0.1/24 --isolated --no-nat --range 10.22.0.100-10.22.0.199`;

const updateExamples = `
What is not named stays as it is; none empties a list.

Examples:
  podnet network update blue --isolated
  podnet network update blue --dns 192.0.2.53 --range none
  podnet network update blue --limit in=100mbit,out=50mbit,pps=10k`;

/** The commands about networks. */
export function addNetwork(program: Command, context: Context): void {
  const group = program
    .command("network")
    .alias("networks")
    .description("make, change, delete and list networks");
  addList(group, context);
  addGet(group, context);
  addCreate(group, context);
  addUpdate(group, context);
  addDelete(group, context);
}

function addList(group: Command, context: Context): void {
  const list = group.command("list", { isDefault: true });
  addOutput(list.description("list networks and how full their pools are"))
    .argument("[name]", "only this one")
    .action(async (name: string | undefined, options: OutputOptions) => {
      const networks = await withPodnet(context, options, async (podnet, signal) => {
        if (name === undefined) return (await podnet.networks.list({}, { signal })).networks;
        const { network } = await podnet.networks.get({ name }, { signal });
        return network === undefined ? [] : [network];
      });
      await printNetworks(context, options, networks);
    });
}

async function printNetworks(
  { io }: Context,
  { output }: OutputOptions,
  networks: readonly Network[],
): Promise<void> {
  if (output !== "table") {
    const items = networks.map((network) => toPlain(NetworkSchema, network));
    await printDocument(io, output, document("NetworkList", { items }));
    return;
  }
  // `network get` shows reserved and quarantined addresses: a line here fits a terminal of 100
  // columns.
  const heading = "NAME BRIDGE SUBNET GATEWAY MTU NAT ISOLATED USED FREE";
  printTable(io.stdout, heading.split(" "), networks.flatMap(rowsOf));
}

const rowsOf = (network: Network): string[][] =>
  network.subnets.map((subnet, i) => [
    i === 0 ? network.name : "",
    i === 0 ? network.bridge : "",
    subnet.cidr,
    subnet.gateway,
    `${network.mtu}`,
    yesNo(network.masquerade),
    yesNo(network.isolated),
    subnet.used,
    amount(subnet.free),
  ]);

const yesNo = (value: boolean): string => (value ? "yes" : "no");

function addGet(group: Command, context: Context): void {
  addOutput(group.command("get").description("show a network"))
    .argument("<name>", "the network")
    .action(async (name: string, options: OutputOptions) => {
      const { network } = await withPodnet(context, options, (podnet, signal) =>
        podnet.networks.get({ name }, { signal }),
      );
      if (network === undefined) return;
      const { io } = context;
      if (options.output === "table") io.stdout.write(networkText(network));
      else
        await printDocument(
          io,
          options.output,
          document("Network", toPlain(NetworkSchema, network)),
        );
    });
}

function networkText(network: Network): string {
  const some = (values: readonly string[], none: string): string =>
    values.length === 0 ? none : values.join(", ");
  const rows = [
    ["Name", network.default ? `${network.name} (the default)` : network.name],
    ["Bridge", network.bridge],
    ["MTU", `${network.mtu}`],
    ["NAT", yesNo(network.masquerade)],
    ["Isolated", yesNo(network.isolated)],
    ["VLAN filtering", yesNo(network.vlanFiltering)],
    ["Cloud metadata", network.cloudMetadata ? "pods reach it" : "out of reach"],
    ["Translated", network.acceptTranslated ? "reaches pods and containers" : "reaches containers"],
    ["Admitted", some(network.admit, "none")],
    ["Host access", some(network.hostAccess, "names, DHCP and ping")],
    ["Connections", network.connections === 0 ? "no limit" : `${network.connections} a pod`],
    ["Limits", limitsText(network.limits) || "none"],
    ["Policy", network.policy === undefined ? "none of its own" : `network:${network.name}`],
    ["Resolver", network.resolver ? "pods ask the gateway for names" : "none"],
    ["DNS", some(network.dns, "the host's")],
    ["Search", some(network.dnsSearch, "none of its own")],
    ["Interfaces", `${network.interfaces}`],
    ...network.subnets.flatMap((subnet) => [
      ["Subnet", `${subnet.cidr}, gateway ${subnet.gateway}`],
      ["  ranges", some(subnet.ranges, "all of it")],
      ["  reserved", some(subnet.reservations, "none")],
      [
        "  addresses",
        `${subnet.used} used, ${amount(subnet.free)} free, ${subnet.reserved} reserved, ${subnet.quarantined} in quarantine`,
      ],
    ]),
  ] as [string, string][];
  return rows.map(([key, value]) => `${key.padEnd(16)}${harmless(value)}\n`).join("");
}

const force = "also where a subnet overlaps with what the host has";

function addCreate(group: Command, context: Context): void {
  const command = addOutput(group.command("create").description("make a network"))
    .argument("<name>", "a DNS label, unique on the node")
    .option("--bridge <name>", "its bridge; default pn- and the name, cut to fit")
    .option("--plan", "show what would be made, and do nothing")
    .option("--force", force);
  addNetworkFlags(command);
  command
    .addHelpText("after", createExamples)
    .action(async (name: string, options: ChangeOptions) => {
      if (options.cidr === undefined) refuseWithoutSubnet(options);
      const spec = await specOf(name, options, context.given);
      const outcome = await withPodnet(context, options, (podnet, signal) => {
        const make = (): Promise<Outcome> =>
          podnet.networks.create(changeOf(options, spec), { signal });
        if (options.cidr !== undefined) return make();
        return withFreeSubnet(podnet, signal, (cidr) => {
          spec.subnets = [create(SubnetSpecSchema, { cidr })];
          return make();
        });
      });
      await printOutcome(context, options, "Created", outcome);
    });
}

function addUpdate(group: Command, context: Context): void {
  const command = addOutput(group.command("update").description("change a network"))
    .argument("<name>", "the network")
    .option("--plan", "show what would be changed, and do nothing")
    .option("--force", force);
  // Before its opposite: of the two the first says what is so when neither is given.
  command.option("--nat", "what leaves the host gets the host's address again");
  addNetworkFlags(command)
    .option("--no-isolated", "pods reach each other again")
    .option("--no-vlan-filtering", "the bridge filters no VLANs any more")
    .option("--no-cloud-metadata", "pods do not reach the cloud's metadata any more")
    .option("--no-accept-translated", "translated connections reach containers alone again");
  command
    .addHelpText("after", updateExamples)
    .action(async (name: string, options: ChangeOptions) => {
      refuseNothing(options);
      const outcome = await withPodnet(context, options, async (podnet, signal) => {
        const { network } = await podnet.networks.get({ name }, { signal });
        const spec = await updatedSpec(network, options, context.given);
        return podnet.networks.update(changeOf(options, spec), { signal });
      });
      await printOutcome(context, options, "Updated", outcome);
    });
}

const changeOf = <Spec>(options: ChangeOptions, spec: Spec) => ({
  spec,
  force: options.force === true,
  planOnly: options.plan === true,
});

function addDelete(group: Command, context: Context): void {
  addOutput(group.command("delete").alias("rm").description("delete an unused network"))
    .argument("<name>", "the network")
    .option("--plan", "show what would be taken away, and do nothing")
    .action(async (name: string, options: PlanOptions) => {
      const { existed, plan } = await withPodnet(context, options, (podnet, signal) =>
        podnet.networks.delete({ name, planOnly: options.plan === true }, { signal }),
      );
      const { io } = context;
      if (options.plan === true) await printPlan(context, options, plan);
      else if (options.output !== "table")
        await printDocument(io, options.output, document("NetworkDeleted", { name, existed }));
      else
        io.stdout.write(
          harmless(existed ? `Deleted network ${name}` : `${name} is gone already`) + "\n",
        );
    });
}

async function printOutcome(
  context: Context,
  options: PlanOptions,
  done: string,
  { network, plan }: Outcome,
): Promise<void> {
  const { io } = context;
  if (network === undefined) return printPlan(context, options, plan);
  if (options.output !== "table")
    return printDocument(io, options.output, document("Network", toPlain(NetworkSchema, network)));
  const subnets = network.subnets.map(({ cidr }) => cidr).join(" and ");
  io.stdout.write(
    `${harmless(`${done} network ${network.name}: ${subnets} on ${network.bridge}`)}\n`,
  );
}

async function printPlan(
  { io }: Context,
  { output }: OutputOptions,
  plan: readonly string[],
): Promise<void> {
  if (output !== "table")
    return printDocument(io, output, document("NetworkPlan", { plan: [...plan] }));
  io.stdout.write(plan.map((line) => `${harmless(line)}\n`).join(""));
}
