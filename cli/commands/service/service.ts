import type { Command } from "commander";
import type { Service } from "../../../api/gen/podnet/v1/service_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument } from "../../output.ts";
import { harmless } from "../../views/text.ts";
import {
  addServiceFlags,
  backendChange,
  changedSpec,
  type ChangeFlags,
  type ServiceFlags,
  specOf,
} from "./flags.ts";
import { printService, printServices, printPlan } from "./show.ts";
import { collect } from "../../parse.ts";

const createExamples = `
Without --backend and --select it has no backends, and refuses connections until an update gives it
some. See docs/how-to/services.md.

Examples:
  podnet service create web --port 80:8080 --select app=web
  podnet service create db --port 5432 --backend db1=3 --backend db2
  podnet service create api --port 80:8080 --select app=api --check /healthz,interval=5
  podnet service create ext --port 443 --backend 192.0.2.10 --backend 192.0.2.11
  podnet service create db --port 5432 --select app=db --scope overlay`;

const updateExamples = `
What is not named stays as it is; none empties a list. Connections that exist stay with their
backends.

Examples:
  podnet service update db --add-backend db3=2
  podnet service update db --add-backend db1=0
  podnet service update db --remove-backend db1 --port 5432 --port 5433:5432`;

interface PlanOptions extends OutputOptions {
  readonly plan?: boolean;
}

/** The result of a change: a service, with the lines of a plan. */
interface Outcome {
  readonly service?: Service | undefined;
  readonly plan: readonly string[];
}

/** The commands about services. */
export function addService(program: Command, context: Context): void {
  const group = program
    .command("service")
    .alias("services")
    .description("virtual addresses that lead to several pods");
  addList(group, context);
  addInspect(group, context);
  addCreate(group, context);
  addUpdate(group, context);
  addDelete(group, context);
}

function addList(group: Command, context: Context): void {
  const list = group.command("list", { isDefault: true });
  addOutput(list.description("list services and where they lead")).action(
    async (options: OutputOptions) => {
      const { services } = await withPodnet(context, options, (podnet, signal) =>
        podnet.services.list({}, { signal }),
      );
      await printServices(context, options, services);
    },
  );
}

function addInspect(group: Command, context: Context): void {
  addOutput(group.command("inspect").alias("get").description("show a service"))
    .argument("<name>", "the service")
    .action(async (name: string, options: OutputOptions) => {
      const { service } = await withPodnet(context, options, (podnet, signal) =>
        podnet.services.get({ name }, { signal }),
      );
      if (service !== undefined) await printService(context, options, service);
    });
}

interface CreateOptions extends PlanOptions, ServiceFlags {
  readonly network?: string;
}

function addCreate(group: Command, context: Context): void {
  addServiceFlags(addOutput(group.command("create").description("make a service")))
    .argument("<name>", "a DNS label, unique on the node")
    .option("--network <name>", "the network of its pods and clients; default the default network")
    .option("--scope <host|overlay>", "overlay: every host of the network's overlay serves it")
    .option("--plan", "check it and show its rules; nothing changes")
    .addHelpText("after", createExamples)
    .action(async (name: string, options: CreateOptions) => {
      const spec = specOf(name, options.network, options);
      const planOnly = options.plan === true;
      const outcome = await withPodnet(context, options, (podnet, signal) =>
        podnet.services.create({ spec, planOnly }, { signal }),
      );
      await printOutcome(context, options, "Created", outcome);
    });
}

interface UpdateOptions extends PlanOptions, ChangeFlags {}

function addUpdate(group: Command, context: Context): void {
  addServiceFlags(addOutput(group.command("update").description("change a service")))
    .argument("<name>", "the service")
    .option("--add-backend <backend>", "one more, or another weight of one; repeatable", collect)
    .option("--remove-backend <name>", "one less: pod or address; repeatable", collect)
    .option("--plan", "check it and show its rules; nothing changes")
    .addHelpText("after", updateExamples)
    .action(async (name: string, options: UpdateOptions) => {
      const { port, backend, select, address, affinity, check } = options;
      const { addBackend, removeBackend } = options;
      const asked = [port, backend, select, address, affinity, check, addBackend, removeBackend];
      if (asked.every((each) => each === undefined))
        throw new PodnetError("INVALID_ARGUMENT", "No change is asked for", {
          hint: "Try: podnet service update --help",
        });
      const planOnly = options.plan === true;
      const single = planOnly ? undefined : backendChange(options);
      const outcome = await withPodnet(context, options, async (podnet, signal) => {
        if (single !== undefined) {
          // Others that change backends at the same time undo nothing of this, nor this of theirs.
          await podnet.services.changeBackends({ name, ...single }, { signal });
          return { ...(await podnet.services.get({ name }, { signal })), plan: [] };
        }
        const { service } = await podnet.services.get({ name }, { signal });
        const spec = changedSpec(service, options);
        return podnet.services.update({ spec, planOnly }, { signal });
      });
      await printOutcome(context, options, "Updated", outcome);
    });
}

function addDelete(group: Command, context: Context): void {
  addOutput(
    group
      .command("delete")
      .alias("rm")
      .description("delete services; connections that exist go on"),
  )
    .argument("<name...>", "the services")
    .action(async (names: readonly string[], options: OutputOptions) => {
      const { io } = context;
      await withPodnet(context, options, async (podnet, signal) => {
        for (const name of names) {
          const { existed } = await podnet.services.delete({ name }, { signal });
          if (options.output !== "table")
            await printDocument(io, options.output, document("ServiceDeleted", { name, existed }));
          else
            io.stdout.write(
              harmless(existed ? `Deleted service ${name}` : `${name} is gone already`) + "\n",
            );
        }
      });
    });
}

async function printOutcome(
  context: Context,
  options: PlanOptions,
  done: string,
  { service, plan }: Outcome,
): Promise<void> {
  const { io } = context;
  if (service === undefined) return;
  if (options.plan === true) await printPlan(context, options, plan);
  else if (options.output !== "table") await printService(context, options, service);
  else {
    const { name, addresses, endpoints } = service;
    const count = `${endpoints.length} backend${endpoints.length === 1 ? "" : "s"}`;
    io.stdout.write(
      `${harmless(`${done} service ${name} at ${addresses.join(" and ")}: ${count}`)}\n`,
    );
  }
  for (const notice of service.notices) io.stderr.write(`${harmless(notice)}\n`);
}
