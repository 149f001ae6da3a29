import type { MessageInitShape } from "@bufbuild/protobuf";
import { connectPodnet, type Podnet } from "../../../api/client.ts";
import type { ExecRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { ExecEvent } from "../../../guest-init/channel/guest.ts";
import { labAddresses, openLab } from "../../../test/lab/lab.ts";
import { startPodnetd } from "../../../test/lab/podnetd.ts";
import type { Ends } from "./by-hand.ts";
import { type End, machineEnd, port } from "./ends.ts";
import { guestEnd, type RunInGuest } from "./guest-end.ts";

type Input = MessageInitShape<typeof ExecRequestSchema>;

/** Two pods of podnet's, on its default network, with its rules. */
export async function openByPodnet(
  directory: string,
  program: string,
  opened: AsyncDisposableStack,
): Promise<Ends> {
  const lab = opened.use(await openLab("ours-"));
  const config = `[network]\nhost_access = ["tcp/${port}", "udp/${port}"]\n`;
  const podnetd = opened.use(await startPodnetd({ machine: lab.host, directory, config }));
  const podnet = opened.use(connectPodnet({ socket: podnetd.socket }));
  opened.defer(async () => void (await podnet.node.down({})));
  const start = async (name: string): Promise<End> => {
    const { pod } = await podnet.pods.create({ spec: { name } });
    const address = pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "";
    return guestEnd(runIn(podnet, name), address, program);
  };
  return {
    guests: [await start("one"), await start("two")],
    host: machineEnd(lab.host, "192.168.123.1", program),
    outside: machineEnd(lab.internet, labAddresses.internet, program),
  };
}

const runIn =
  (podnet: Podnet, idOrName: string): RunInGuest =>
  (args, stdin) => {
    const stop = new AbortController();
    async function* requests(): AsyncGenerator<Input> {
      yield { input: { case: "start", value: { idOrName, args: [...args] } } };
      for (let at = 0; at < stdin.length; at += 32_768)
        yield { input: { case: "stdin", value: stdin.slice(at, at + 32_768) } };
    }
    const answers = podnet.pods.exec(requests(), { signal: stop.signal });
    async function* events(): AsyncGenerator<ExecEvent> {
      for await (const { output } of answers) {
        if (output.case === "stdout") yield { kind: "stdout", data: output.value };
        if (output.case === "stderr") yield { kind: "stderr", data: output.value };
        if (output.case === "exit") yield { kind: "exit", code: output.value.code };
      }
    }
    return Promise.resolve({
      events: events(),
      kill: () => Promise.resolve(stop.abort()),
    });
  };
