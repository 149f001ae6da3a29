import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeTtyFrame, TtyDecoder } from "../../guest-init/protocol/tty-frame.ts";
import { parseProcessEvent } from "../../guest-init/protocol/process-messages.ts";
import { parseHelloReply } from "../../guest-init/protocol/extension-messages.ts";
import { run } from "../../linux/processes/command.ts";
import { AgentHost } from "../lab/agent-host.ts";
import { ownNetns } from "../lab/netns.ts";
import { recordedFrames, recordedProcesses } from "../lab/recorded-frames.ts";

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

test("today's agent runs what a podnetd of before asks for: input, a signal, a terminal; and its power-off", async (t) => {
  t.timeout(60_000);
  await using agent = await AgentHost.start();
  const now = new Map<number, string>();
  const then = new Map<number, string>();
  const tty = new TtyDecoder();
  const append = (to: Map<number, string>, stream: number, data: Uint8Array): void => {
    to.set(
      stream,
      (to.get(stream) ?? "") + (data.length > 0 ? Buffer.from(data).toString() : "<end>"),
    );
  };
  agent.tty.on("data", (bytes) => {
    for (const item of tty.push(bytes))
      if (item.kind === "frame") append(now, Number(item.stream), item.data);
  });
  for (const line of recordedProcesses().lines) {
    if ("stream" in line) {
      const { stream, data } = line;
      if (line.from === "host") {
        agent.tty.write(encodeTtyFrame(BigInt(stream), data));
        continue;
      }
      append(then, stream, data);
      const whole = then.get(stream) ?? "";
      for (let i = 0; i < 500 && (now.get(stream) ?? "").length < whole.length; i++)
        await delay(10);
      t.true(now.get(stream)?.startsWith(whole), `${stream}: ${now.get(stream)}, then ${whole}`);
    } else if (line.from === "host") {
      const answer = await agent.ask(line.code, line.payload);
      t.is(answer.code, command.ack, `command ${line.code}: ${answer.payload.toString()}`);
    } else if (line.code === command.processAsyncEvent) {
      const event = parseProcessEvent(line.payload);
      t.deepEqual(await agent.ended(event.process), event);
    }
  }
  t.deepEqual(now, then);
});
