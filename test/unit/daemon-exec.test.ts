import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../api/service.ts";
import { serveApi } from "../../daemon/server/api-server.ts";
import type { ServiceParts } from "../../daemon/server/context.ts";
import { streamExec } from "../../daemon/server/exec-stream.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeProcessEvent, parseExecCmd } from "../../guest-init/protocol/process-messages.ts";
import { ScriptedGuest } from "../peers/scripted-guest.ts";

const never = new AbortController().signal;

for (const [how, closes] of [
  ["half-closes", []],
  ["says so and half-closes", [{ input: { case: "closeStdin" as const, value: {} } }]],
] as const) {
  test(`a caller who ${how} ends the program's input, once, and still gets its output`, async (t) => {
    await using peer = await ScriptedGuest.start();
    const { channelPath, ttyPath } = peer;
    const guest = openGuest({ channelPath, ttyPath, reattach: false });
    await peer.say(command.ready);
    await peer.introduce("ours");
    await guest.ready(never);

    const parts = {
      pods: { running: () => ({ guest, plan: { podId: "abcdefghijkl" } }) },
    } as unknown as ServiceParts;
    const socket = join(mkdtempSync(join(tmpdir(), "podnet-exec-")), "api.sock");
    const api = await serveApi({
      unix: { path: socket, group: undefined },
      tcp: undefined,
      routes: (router) =>
        addService(router, PodService, {
          exec: (requests, context) => streamExec(requests, parts, context.signal),
        }),
      metrics: () => Promise.resolve({ type: "text/plain", text: "" }),
    });
    using client = connectPodnet({ socket });

    async function* input() {
      const start = { idOrName: "one", args: ["cat"] };
      yield { input: { case: "start" as const, value: start } };
      yield { input: { case: "stdin" as const, value: Buffer.from("words") } };
      yield* closes;
    }
    const seen: string[] = [];
    const reading = (async () => {
      for await (const { output } of client.pods.exec(input())) {
        if (output.case === "stdout") seen.push(Buffer.from(output.value).toString());
        if (output.case === "exit") seen.push(`exit ${output.value.code}`);
      }
    })();
    const { process } = parseExecCmd((await peer.command(command.execCmd)).payload);
    await peer.say(command.ack);
    t.is(Buffer.from((await peer.input()).data).toString(), "words");
    const end = await peer.input();
    t.deepEqual([end.stream, end.data.length], [process.stdio, 0]);
    await peer.output(process.stdio, Buffer.from("the end"));
    await peer.output(process.stdio);
    await peer.say(
      command.processAsyncEvent,
      encodeProcessEvent({
        container: "hyperstart",
        process: process.id,
        event: "finished",
        status: 3,
      }),
    );
    await reading;
    t.deepEqual(seen, ["the end", "exit 3"]);
    t.is(peer.inputWaiting, 0);
    await guest.close();
    await api.close(200);
  });
}
