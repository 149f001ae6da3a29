import test from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { parseHelloReply } from "../../guest-init/protocol/extension-messages.ts";
import { run } from "../../linux/command.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";
import { recordedFrames } from "../lab/recorded-frames.ts";

test.before(ownNetns);

test("today's agent answers what a podnetd of before sends as the agent of then did", async (t) => {
  await using agent = await AgentHost.start();
  const { config, frames } = recordedFrames(1);
  const mac = config.interfaces[0]?.mac ?? "";
  await run(
    `ip link add veth0 address ${mac} type veth peer name veth1`.split(" ") as [
      string,
      ...string[],
    ],
  );
  await run(["ip", "link", "set", "veth1", "up"]);
  for (const [at, { from, code, payload }] of frames.entries()) {
    if (from !== "host") continue;
    const then = frames
      .slice(at + 1)
      .find(
        (each) =>
          each.from === "agent" && [command.ack, command.error].includes(each.code as never),
      );
    const now = await agent.ask(code, payload);
    t.is(now.code, then?.code ?? -1, `command ${code}: ${now.payload.toString()}`);
    if (code === command.hello) {
      const asked = JSON.parse(payload.toString()) as { readonly nonce: string };
      t.is(parseHelloReply(now.payload).nonce, asked.nonce);
    }
    if (code === 101 && now.code === command.ack) {
      type Observed = { readonly interfaces: readonly { readonly mac: string }[] };
      const seen = (bytes: Buffer): unknown => {
        const { interfaces } = JSON.parse(bytes.toString()) as Observed;
        return { ...interfaces.find((each) => each.mac === mac), index: 0 };
      };
      t.deepEqual(seen(now.payload), seen(then?.payload ?? Buffer.of()));
    }
  }
});
