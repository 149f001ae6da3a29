import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Podnet } from "../../../api/client.ts";
import type { AttachProcessRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { Queue } from "../../../core/queue.ts";
import type { Io } from "../../io.ts";
import { followSize, passInput, passSignals } from "../../program-input.ts";
import { rawMode, sizeOf, write } from "../../terminal.ts";

interface Attaching {
  readonly idOrName: string;
  /** First what it has written since its start. */
  readonly fromStart: boolean;
  readonly terminal: boolean;
  /** Standard input is passed on. */
  readonly interactive: boolean;
}

/**
 * Prints the output of a pod's main process until it ends, passes signals and input on, and answers
 * its exit code.
 */
export async function runAttached(
  io: Io,
  podnet: Podnet,
  { idOrName, fromStart, terminal, interactive }: Attaching,
): Promise<number> {
  const input = new Queue<MessageInitShape<typeof AttachProcessRequestSchema>>();
  input.push({ input: { case: "start", value: { idOrName, fromStart } } });
  if (terminal) input.push({ input: { case: "resize", value: sizeOf(io.stdout) } });
  using stack = new DisposableStack();
  if (terminal && interactive) stack.use(rawMode(io.stdin));
  if (terminal) stack.use(followSize(io, input));
  const gaveUp = new AbortController();
  stack.use(passSignals(io, input, gaveUp));
  if (interactive) stack.use(passInput(io, input));
  stack.defer(() => input.end());
  for await (const { output } of podnet.pods.attachProcess(input, { signal: gaveUp.signal })) {
    if (output.case === "stdout") await write(io.stdout, output.value);
    if (output.case === "stderr") await write(io.stderr, output.value);
    if (output.case === "exit") return output.value.code;
  }
  throw new PodnetError("AGENT_DISCONNECTED", "The end of the main process was not reported", {
    hint: `See whether it still runs: podnet get ${idOrName}`,
  });
}
