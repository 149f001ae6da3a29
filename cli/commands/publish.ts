import type { Command } from "commander";
import { type Plan, PlanSchema, type Pod, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { PublishedPort } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { portText } from "../../api/port-text.ts";
import { PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { planText } from "../views/plan-view.ts";
import { portsFromTexts, portTable } from "../views/port-view.ts";

interface Options extends OutputOptions {
  readonly plan?: boolean;
}

const spec = "[[IP:]HOST:]POD[/tcp|udp|sctp], with ranges such as 8000-8010:80-90";

const examples = `
Examples:
  podnet publish web 8080:80              127.0.0.1 and ::1 port 8080
  podnet publish web 80                   a port that podnet chooses, of the host alone
  podnet publish web '*:8080:80'          every address of the host
  podnet publish web '[::]:53:53/udp' 192.0.2.1:443:443`;

export function addPublish(program: Command, context: Context): void {
  const command = program.command("publish");
  addOutput(command.description("make ports of a running pod reachable at the host"))
    .argument("<pod>", "name or id")
    .argument("<spec...>", spec)
    .option("--plan", "show what would be done, and do nothing")
    .addHelpText("after", examples)
    .action(async (idOrName: string, texts: readonly string[], options: Options) => {
      const request = { idOrName, ports: portsFromTexts(texts), planOnly: options.plan === true };
      const { pod, plan, ports } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.publishPorts(request, { signal }),
      );
      // Only the ports that were asked for, with the ports that were chosen.
      const shown = pod === undefined ? undefined : { ...pod, ports };
      await answer(context, options, plan ?? shown, pod);
    });
}

export function addUnpublish(program: Command, context: Context): void {
  const command = program.command("unpublish");
  addOutput(command.description("take published ports of a running pod back"))
    .argument("<pod>", "name or id")
    .argument("<spec...>", "as `podnet ports` shows it; without a host port: those of a pod's port")
    .option("--plan", "show what would be done, and do nothing")
    .action(async (idOrName: string, texts: readonly string[], options: Options) => {
      const request = { idOrName, ports: portsFromTexts(texts), planOnly: options.plan === true };
      const { pod, plan, notPublished } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.unpublishPorts(request, { signal }),
      );
      for (const port of notPublished)
        context.io.stderr.write(
          `was not published: ${portText(port).replace(/^0:/, "")}${asHostPort(port, pod)}\n`,
        );
      for (const text of stillPublished(request.ports, plan === undefined ? pod : undefined))
        context.io.stderr.write(`still published: ${text}\n`);
      await answer(context, options, plan ?? pod, pod);
    });
}

/** A lone port is one of the pod. When it is published at the host alone, that may be meant. */
function asHostPort({ hostPort, podPort }: PublishedPort, pod: Pod | undefined): string {
  if (hostPort !== 0) return "";
  const meant = pod?.ports.find((each) => each.hostPort === podPort);
  if (pod === undefined || meant === undefined) return "";
  return ` (a port of the pod; host port ${podPort}: podnet unpublish ${pod.name} ${portText(meant)})`;
}

/** Ports that differ from the withdrawn ones only in address or range, and may have been meant. */
const stillPublished = (asked: readonly PublishedPort[], pod: Pod | undefined): string[] =>
  (pod?.ports ?? [])
    .filter(({ protocol, hostPort, podPort }) =>
      asked.some(
        (one) =>
          (one.protocol || "tcp") === protocol &&
          (one.hostPort === 0 ? one.podPort === podPort : one.hostPort === hostPort),
      ),
    )
    .map(portText);

async function answer(
  { io }: Context,
  { output }: Options,
  shown: Plan | Pod | undefined,
  pod: Pod | undefined,
): Promise<void> {
  if (shown === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  const isPlan = shown.$typeName === "podnet.v1.Plan";
  if (output === "table") io.stdout.write(isPlan ? planText(io.stdout, shown) : portTable([shown]));
  else if (isPlan) await printDocument(io, output, document("Plan", toPlain(PlanSchema, shown)));
  else await printDocument(io, output, document("Pod", toPlain(PodSchema, pod ?? shown)));
}
