import { resolve } from "node:path";
import type { Command } from "commander";
import { PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, withPodnet } from "../context.ts";
import { addRequestFlags, printMade, type RequestFlags, requestFrom } from "../pod-request.ts";
import { FlagWriter } from "../flags/given.ts";
import { addNetworkFlags } from "../flags/spec-flags.ts";

interface Options extends RequestFlags {
  readonly qmp: string;
  readonly channel?: string;
  readonly tty?: string;
}

const examples = `
The VM belongs to the program that started it: podnet adds NICs, and never pauses, stops or ends the VM.
podnet keeps the QMP socket in use as long as the pod exists; give the VM a second -qmp for yourself.

Examples:
  podnet attach --qmp /run/vm/qmp.sock --name db
  podnet attach --qmp /run/vm/qmp.sock --channel /run/vm/ch0.sock --tty /run/vm/ch1.sock
  podnet attach --qmp /run/vm/qmp.sock --interface lan,address=10.0.0.2 --plan
  podnet detach db`;

export function addAttach(program: Command, context: Context): void {
  const command = program.command("attach");
  command
    .description("add NICs to a VM that another program started")
    .requiredOption("--qmp <socket>", "a QMP socket of the VM that no other program uses")
    .option("--channel <socket>", "its virtserialport sh.hyper.channel.0, with an agent behind it")
    .option("--tty <socket>", "its virtserialport sh.hyper.channel.1, for podnet exec")
    .option("--agent <kind>", "hyperstart; default: the agent that answers on the channel");
  addRequestFlags(command);
  addOutput(command);
  addNetworkFlags(command);
  command.addHelpText("after", examples).action(async (options: Options) => {
    await attach(context, options);
  });
}

async function attach(context: Context, options: Options): Promise<void> {
  const request = {
    ...(await requestFrom(options, context.given)),
    qmpSocket: "",
    channelSocket: "",
    ttySocket: "",
  };
  const flags = new FlagWriter(options, context.given);
  for (const key of ["qmp", "channel", "tty"] as const)
    flags.put(key, `${key}_socket`, (path) => {
      request[`${key}Socket`] = resolve(path);
    });
  const { pod, plan } = await withPodnet(context, options, (podnet, signal) =>
    podnet.pods.attach(request, { signal }),
  );
  const made = plan ?? pod;
  if (made === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  await printMade(context.io, options, made);
}
