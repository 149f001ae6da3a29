import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { toPodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { daemonChecks } from "../../doctor/daemon-checks.ts";
import { examine } from "../../doctor/doctor.ts";
import type { Finding } from "../../doctor/finding.ts";
import type { Host } from "../../doctor/host.ts";
import { type Answers, recorded } from "../../doctor/recorded-host.ts";
import { exitCodes } from "../../exit-codes.ts";
import type { Io, Output } from "../../io.ts";
import { document, printDocument } from "../../output.ts";
import { usage } from "../../usage.ts";
import { count, harmless, styled } from "../../views/text.ts";

interface Options extends OutputOptions {
  readonly fix?: boolean;
  readonly from?: string;
  readonly all?: boolean;
}

const more = `
Looks at kernel, devices, firewall, systemd unit, disk, clock and etcd, and asks podnetd if it answers. Changes nothing
without --fix, which runs the commands it names: they are safe, and about podnet's own parts. Exits 1 when a check fails.
As root it sees more: devices, and rules of other programs.

Examples:
  podnet doctor
  podnet doctor --fix
  podnet doctor --from host.json      of another host, as podnet bugreport has it`;

export function addDoctor(program: Command, context: Context): void {
  addOutput(program.command("doctor").description("find what is wrong with this host"))
    .option("--fix", "repair what is safe to repair, then look again")
    .option("--all", "also print what is well")
    .option("--from <file>", "judge the answers of another host, host.json of a bug report")
    .addHelpText("after", more)
    .action(async (options: Options) => {
      if (options.fix === true && options.from !== undefined)
        throw usage("--fix repairs this host, and --from is about another", "Give one of them");
      const host =
        options.from === undefined ? await ownHost(context.io, options) : hostFrom(options.from);
      let findings = await examined(context, options, host);
      if (options.fix === true && (await repair(context.io, host, findings)))
        findings = await examined(context, options, host);
      if (findings.some(({ status }) => status === "failed")) context.exitCode = exitCodes.failed;
      await print(context.io, options, findings);
    });
}

/** (Node's modules for it are loaded only now: few commands need them.) */
const ownHost = async ({ env }: Io, target: Options): Promise<Host> =>
  (await import("../../doctor/this-host.ts")).hostOfCaller(target, env);

function hostFrom(file: string): Host {
  let answers: Answers;
  try {
    answers = JSON.parse(readFileSync(file, "utf8")) as Answers;
  } catch (cause) {
    throw usage(
      `--from "${file}" cannot be read: ${toPodnetError(cause).message}`,
      "Unpack host.json of a podnet bugreport",
    );
  }
  return recorded(answers ?? {});
}

async function examined(context: Context, options: Options, host: Host): Promise<Finding[]> {
  const findings = await examine(host);
  if (options.from !== undefined) return findings;
  return [
    ...findings,
    ...(await withPodnet(context, options, (podnet, signal) => daemonChecks(podnet, signal))),
  ];
}

/** Whether something was tried. */
async function repair({ stderr }: Io, host: Host, findings: readonly Finding[]): Promise<boolean> {
  const fixes = findings.flatMap(({ status, fix }) => (status !== "ok" && fix ? [fix] : []));
  for (const fix of fixes) {
    stderr.write(`Running: ${fix.join(" ")}\n`);
    const ran = await host.run(fix);
    if (ran?.code !== 0)
      stderr.write(`It failed: ${harmless(ran?.stderr.trim() ?? "there is no such program")}\n`);
  }
  if (fixes.length === 0) stderr.write("Nothing that podnet may repair by itself\n");
  return fixes.length > 0;
}

const colours = { ok: "green", warning: "yellow", failed: "red" } as const;
const marks = { ok: "✓", warning: "!", failed: "✗" } as const;

async function print(io: Io, options: Options, findings: readonly Finding[]): Promise<void> {
  if (options.output !== "table") {
    const items = findings.map(({ fix, ...each }) => ({ ...each, fix: [...(fix ?? [])] }));
    await printDocument(io, options.output, document("Diagnosis", { items }));
    return;
  }
  const shown = findings.filter(({ status }) => options.all === true || status !== "ok");
  io.stdout.write(shown.map((each) => textOf(io.stdout, each)).join(""));
  const number = (status: Finding["status"]): number =>
    findings.filter((each) => each.status === status).length;
  io.stdout.write(
    `${count(findings.length, "check")}: ${number("ok")} well, ${count(number("warning"), "warning")}, ${number("failed")} failed\n`,
  );
}

const textOf = (out: Output, { name, status, message, hint, fix }: Finding): string =>
  [
    `${styled(out, colours[status], marks[status])} ${harmless(name)}: ${harmless(message)}`,
    ...(hint === "" ? [] : [`  ${styled(out, "cyan", "hint:")} ${harmless(hint)}`]),
    ...(fix === undefined ? [] : [`  ${styled(out, "cyan", "fix:")} podnet doctor --fix`]),
  ]
    .map((text) => `${text}\n`)
    .join("");
