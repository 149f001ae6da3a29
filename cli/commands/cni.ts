import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type Attachment,
  AttachmentSchema,
  AttachmentState,
} from "../../api/gen/podnet/v1/cni_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { lower } from "../views/pod-view.ts";
import { printCounts } from "./policy/guard.ts";
import { addTraceOf } from "./policy/trace.ts";
import { age, harmless, table } from "../views/text.ts";

/** The commands about container runtimes that use podnet. */
export function addCni(program: Command, context: Context): void {
  const group = program
    .command("cni")
    .description("container runtimes: which containers are attached; install the plugin");
  addList(group, context);
  addGuardOf(group, context);
  addTraceOf(group, context);
  addInstall(group, context);
  addUninstall(group, context);
}

function addList(group: Command, context: Context): void {
  const list = group.command("list", { isDefault: true });
  addOutput(list.description("list attached containers")).action(async (options: OutputOptions) => {
    const { io } = context;
    const { attachments } = await withPodnet(context, options, (podnet, signal) =>
      podnet.cni.list({}, { signal }),
    );
    if (options.output !== "table") {
      const items = attachments.map((each) => toPlain(AttachmentSchema, each));
      await printDocument(io, options.output, document("AttachmentList", { items }));
      return;
    }
    const heading = "CONTAINER IFNAME STATE AGE NETWORK ADDRESS PORTS POD TROUBLE".split(" ");
    const now = Date.now();
    if (attachments.length === 0) {
      io.stderr.write("No containers. Runtimes attach them: podnet cni install\n");
      return;
    }
    io.stdout.write(
      table(
        heading,
        attachments.map((each) => rowOf(each, now)),
      ),
    );
  });
}

const rowOf = (each: Attachment, now: number): string[] => [
  // As runtimes show it: of 64 characters the first twelve.
  each.containerId.length === 64 ? each.containerId.slice(0, 12) : harmless(each.containerId),
  each.ifName,
  lower(AttachmentState, each.state),
  each.createdAt === undefined ? "-" : age(now - timestampMs(each.createdAt)),
  each.network,
  each.addresses.map((address) => address.slice(0, address.indexOf("/"))).join(","),
  each.ports.map(portText).join(",") || "-",
  harmless(each.pod) || "-",
  harmless(each.trouble) || "-",
];

/** `tcp 0.0.0.0:8080 to 192.168.123.2:80` as ports are written: `0.0.0.0:8080:80/tcp`. */
function portText(port: string): string {
  const [protocol = "", host = "", , pod = ""] = harmless(port).split(" ");
  return `${host}:${pod.slice(pod.lastIndexOf(":") + 1)}/${protocol}`;
}

function addGuardOf(group: Command, context: Context): void {
  const guard = group.command("guard");
  addOutput(
    guard.description(
      "show what the host dropped and refused of a container, and what policies denied",
    ),
  )
    .argument("<container>", "its id, or how the id begins")
    .action(async (container: string, options: OutputOptions) => {
      const answer = await withPodnet(context, options, (podnet, signal) =>
        podnet.cni.guard({ container }, { signal }),
      );
      await printCounts(context, options, answer);
    });
}

interface InstallOptions extends OutputOptions {
  readonly dir?: string;
  readonly binDir?: string;
  readonly network?: string;
  readonly for?: string;
}

function addInstall(group: Command, context: Context): void {
  group
    .command("install")
    .description("install podnet-cni and its configuration for container runtimes")
    .option("--dir <directory>", "of configurations; default /etc/cni/net.d")
    .option("--bin-dir <directory>", "of plugins; default /opt/cni/bin")
    .option("--network <name>", "podnet's network for containers; default the node's")
    .option("--for <runtime>", "podman: it listens at published ports itself, and names containers")
    .addHelpText(
      "after",
      "\nThey stay until podnet cni uninstall or podnet down, also while podnetd is stopped.",
    )
    .action(async (options: InstallOptions) => {
      const { dir = "", binDir = "", network = "", for: runtime = "" } = options;
      const { paths } = await withPodnet(context, options, (podnet, signal) =>
        podnet.cni.install({ dir, binDir, network, runtime }, { signal }),
      );
      for (const path of paths) context.io.stdout.write(`Wrote ${path}\n`);
    });
}

interface UninstallOptions extends OutputOptions {
  readonly force?: boolean;
}

function addUninstall(group: Command, context: Context): void {
  group
    .command("uninstall")
    .description("remove podnet-cni and its configuration; refused while containers are attached")
    .option(
      "--force",
      "also while containers are attached: their runtimes can no longer detach them",
    )
    .action(async (options: UninstallOptions) => {
      const { force = false } = options;
      const { paths } = await withPodnet(context, options, (podnet, signal) =>
        podnet.cni.uninstall({ force }, { signal }),
      );
      for (const path of paths) context.io.stdout.write(`Removed ${path}\n`);
      if (paths.length === 0) context.io.stdout.write("Nothing was installed\n");
    });
}
