import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  HealthCheck_Status as Status,
  type HealthResponse,
  HealthResponseSchema,
  type InfoResponse,
  InfoResponseSchema,
} from "../../api/gen/podnet/v1/node_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import type { Output } from "../io.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { age, columns, harmless, styled } from "../views/text.ts";

export function addInfo(program: Command, context: Context): void {
  addOutput(
    program.command("info").description("show the node: versions, paths, pods, and its health"),
  )
    .addHelpText("after", "\nExits 1 when a health check fails.")
    .action(async (options: OutputOptions) => {
      const { io } = context;
      const [info, health, target] = await withPodnet(context, options, async (podnet, signal) => [
        await podnet.node.info({}, { signal }),
        await podnet.node.health({}, { signal }),
        podnet.target,
      ]);
      if (!health.ok) context.exitCode = exitCodes.failed;
      if (options.output !== "table") {
        const body = {
          ...toPlain(InfoResponseSchema, info),
          health: toPlain(HealthResponseSchema, health),
        };
        await printDocument(io, options.output, document("Node", body));
        return;
      }
      const lines = [...infoLines(info, target), ...healthLines(io.stdout, health)];
      io.stdout.write(`${lines.join("\n")}\n`);
    });
}

function infoLines(info: InfoResponse, target: string): string[] {
  const up =
    info.startedAt === undefined ? "" : `, up ${age(Date.now() - timestampMs(info.startedAt))}`;
  const pods = Object.entries(info.pods).map(([state, n]) => `${n} ${state}`);
  return columns([
    ["podnetd", `${info.version}, pid ${info.pid}${up}`],
    ["Socket", target],
    ["You", `${harmless(info.caller)}: ${info.role}`],
    ["Host", `${harmless(info.hostname)}, Linux ${harmless(info.kernel)}, ${info.arch}`],
    [
      "VMs",
      `${info.driver} ${harmless(info.qemuVersion) || "not installed"}, ${info.machineArch}, ${info.accelerator}`,
    ],
    ["Firewall", info.firewall],
    ["Network", info.defaultNetwork],
    ["State", info.stateDir],
    ["Disks", info.disksDir],
    ["Run", info.runDir],
    ["Image", [info.defaultKernel, info.defaultInitrd].filter((path) => path !== "").join(" ")],
    ["Pods", pods.length === 0 ? "none" : pods.join(", ")],
  ]);
}

function healthLines(out: Output, health: HealthResponse): string[] {
  const marks: Readonly<Partial<Record<Status, string>>> = {
    [Status.OK]: styled(out, "green", "✓"),
    [Status.WARNING]: styled(out, "yellow", "!"),
    [Status.FAILED]: styled(out, "red", "✗"),
  };
  return health.checks.flatMap(({ name, status, message, hint }) => [
    `${marks[status] ?? "?"} ${harmless(name)}${message === "" ? "" : `: ${harmless(message)}`}`,
    ...(hint === "" || status === Status.OK
      ? []
      : [`  ${styled(out, "cyan", "hint:")} ${harmless(hint)}`]),
  ]);
}
