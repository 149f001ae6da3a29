import { timestampMs } from "@bufbuild/protobuf/wkt";
import { Option, type Command } from "commander";
import { type Exec, ExecSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { fromErrorInfo } from "../../api/codes.ts";
import { PodnetError } from "../../core/errors.ts";
import {
  addOutput,
  type CommonOptions,
  type Context,
  type OutputOptions,
  withPodnet,
} from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { parseSignal } from "../parse.ts";
import { write } from "../terminal.ts";
import { age, harmless, styled, printTable } from "../views/text.ts";

const about = `
A program that podnet exec --detach started stays in the list when it has ended: the last 32 of a pod, with the last 64 KiB
of what each wrote. The list ends with the pod's machine, and with podnetd; the programs run on when podnetd starts again.

Examples:
  id=$(podnet exec --detach web sh -c 'sleep 1; echo done')
  podnet execs wait $id
  podnet execs logs $id`;

/** `podnet execs`: programs that run in pods, and those that were started without a caller. */
export function addExecs(program: Command, context: Context): void {
  const group = program
    .command("execs")
    .description("list, wait for, signal and follow programs in pods")
    .addHelpText("after", about);
  addExecsList(group, context);
  addExecsGet(group, context);
  addExecsWait(group, context);
  addExecsKill(group, context);
  addExecsLogs(group, context);
}

function addExecsList(group: Command, context: Context): void {
  addOutput(
    group.command("list", { isDefault: true }).description("list programs, of one pod or of all"),
  )
    .argument("[pod]", "name or id")
    .action(async (idOrName: string | undefined, options: OutputOptions) => {
      const { io } = context;
      const { execs } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.listExecs({ idOrName: idOrName ?? "" }, { signal }),
      );
      if (options.output === "table") {
        const heading = "ID POD STATE AGE PROGRAM".split(" ");
        printTable(io.stdout, heading, execs.map(rowOf));
        return;
      }
      const items = execs.map((exec) => toPlain(ExecSchema, exec));
      await printDocument(io, options.output, document("ExecList", { items }));
    });
}

const rowOf = (exec: Exec): string[] => [
  exec.id,
  exec.podName,
  stateText(exec),
  exec.startedAt === undefined ? "-" : age(Date.now() - timestampMs(exec.startedAt)),
  harmless(exec.args.join(" ")).slice(0, 60),
];

function stateText({ state, code, error, detached }: Exec): string {
  if (state === "exited") return `exited ${code ?? ""}`;
  if (state === "failed") return harmless(error?.code ?? state);
  return detached ? state : `${state}, attached`;
}

function addExecsGet(group: Command, context: Context): void {
  group
    .command("get")
    .description("show one program")
    .argument("<id>", "as podnet exec --detach printed it")
    .addOption(
      new Option("-o, --output <format>", "how to print").choices(["json", "yaml"]).default("yaml"),
    )
    .action(async (execId: string, options: CommonOptions & { output: "json" | "yaml" }) => {
      const { exec } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.getExec({ execId }, { signal }),
      );
      const body = toPlain(ExecSchema, present(exec));
      await printDocument(context.io, options.output, document("Exec", body));
    });
}

function addExecsWait(group: Command, context: Context): void {
  group
    .command("wait")
    .description("wait until programs have ended, and print their exit codes")
    .argument("<id...>", "as podnet exec --detach printed them")
    .action(async (ids: string[], options: CommonOptions) => {
      await withPodnet(context, options, async (podnet, signal) => {
        for (const execId of ids) {
          const { exec } = await podnet.pods.waitExec({ execId }, { signal });
          context.io.stdout.write(`${codeOf(present(exec))}\n`);
        }
      });
    });
}

function addExecsKill(group: Command, context: Context): void {
  group
    .command("kill")
    .description("send a signal to programs and the processes they started")
    .argument("<id...>", "as podnet exec --detach printed them")
    .option("-s, --signal <signal>", "name or number", "KILL")
    .action(async (ids: string[], options: CommonOptions & { signal: string }) => {
      const number = parseSignal(options.signal);
      await withPodnet(context, options, async (podnet, signal) => {
        for (const execId of ids) {
          await podnet.pods.signalExec({ execId, signal: number }, { signal });
          context.io.stdout.write(`${execId}\n`);
        }
      });
    });
}

interface LogsOptions extends CommonOptions {
  readonly follow?: boolean;
}

function addExecsLogs(group: Command, context: Context): void {
  group
    .command("logs")
    .description("print what a program wrote, as far as it is kept")
    .argument("<id>", "as podnet exec --detach printed it")
    .option("-f, --follow", "go on until the program ends, and end with its exit code")
    .action(async (execId: string, options: LogsOptions) => {
      const { io } = context;
      const noFollow = options.follow !== true;
      await withPodnet(context, options, async (podnet, signal) => {
        const answers = podnet.pods.followExec({ execId, noFollow }, { signal });
        for await (const { output } of answers) {
          if (output.case === "stdout") await write(io.stdout, output.value);
          if (output.case === "stderr") await write(io.stderr, output.value);
          if (output.case === "skipped") {
            const missing = `${output.value} bytes are no longer kept`;
            io.stderr.write(`${styled(io.stderr, "yellow", missing)}\n`);
          }
          if (output.case === "exec" && !noFollow) context.exitCode = codeOf(output.value);
        }
      });
    });
}

function present(exec: Exec | undefined): Exec {
  if (exec !== undefined) return exec;
  throw new PodnetError("INTERNAL", "podnetd answered without a program");
}

/** Its exit code. Throws why there is none. */
function codeOf({ code, error }: Exec): number {
  if (code !== undefined) return code;
  if (error !== undefined) throw fromErrorInfo(error);
  throw new PodnetError("INTERNAL", "podnetd answered without an exit code");
}
