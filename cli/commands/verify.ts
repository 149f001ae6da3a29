import type { Command } from "commander";
import { VerifyPodResponseSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { count, harmless, styled, table } from "../views/text.ts";

const more = `
Processes that share no code with podnet read links, addresses, routes and limits of the host through npm's netlink, the NICs
of the VM through npm's qemu-qmp, and the rules of published ports, guard and policies as nft and iptables-save print them.
CNI plugins that set the pod up run CHECK. Exits with 1 on a difference.`;

export function addVerify(program: Command, context: Context): void {
  addOutput(
    program.command("verify").description("compare a pod with what independent programs find"),
  )
    .argument("<pod>", "name or id")
    .addHelpText("after", more)
    .action(async (idOrName: string, options: OutputOptions) => {
      const { io } = context;
      const result = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.verify({ idOrName }, { signal }),
      );
      if (!result.ok) context.exitCode = exitCodes.failed;
      if (options.output !== "table") {
        const body = toPlain(VerifyPodResponseSchema, result);
        await printDocument(io, options.output, document("Verification", body));
        return;
      }
      const rows = result.checks.map(({ ok, subject, source, wanted, found }) => [
        ok ? "ok" : "DIFFERS",
        harmless(subject),
        harmless(wanted),
        harmless(found),
        source,
      ]);
      io.stdout.write(table(["", "SUBJECT", "WANTED", "FOUND", "SOURCE"], rows));
      const wrong = result.checks.filter((check) => !check.ok).length;
      io.stdout.write(
        result.ok
          ? styled(io.stdout, "green", `${count(result.checks.length, "check")}, all as recorded\n`)
          : styled(
              io.stdout,
              "red",
              `${wrong} of ${count(result.checks.length, "check")} differ\n`,
            ),
      );
    });
}
