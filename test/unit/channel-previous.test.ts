import test from "ava";
import { openGuest } from "../../guest-init/channel/session.ts";
import { command } from "../../guest-init/protocol/codes.ts";
import { recordedFrames } from "../lab/recorded-frames.ts";
import { ScriptedGuest } from "../peers/scripted-guest.ts";

const never = new AbortController().signal;

/** Answers every command as the agent of then did, the first of a kind first; the nonce alone is ours. */
async function replay(peer: ScriptedGuest): Promise<void> {
  const { frames } = recordedFrames(1);
  const asked = frames.flatMap(({ from, code }, at) => {
    const answers = frames
      .slice(at + 1)
      .filter((each) => each.from === "agent")
      .filter((each) => each.code === command.ack || each.code === command.error);
    return from === "host" ? [{ code, answer: answers[0] }] : [];
  });
  await peer.say(command.ready);
  for (;;) {
    const { code, payload } = await peer.command();
    const at = asked.findIndex((each) => each.code === code);
    const [found] = at < 0 ? [] : asked.splice(at, 1);
    // What this agent never heard of it refuses, as hyperstart does.
    if (found?.answer === undefined) await peer.say(command.error);
    else if (code === command.hello) {
      const { nonce } = JSON.parse(Buffer.from(payload).toString()) as { nonce: string };
      const answer = JSON.parse(found.answer.payload.toString()) as object;
      await peer.say(command.ack, Buffer.from(JSON.stringify({ ...answer, nonce })));
    } else await peer.say(found.answer.code, found.answer.payload);
  }
}

test("today's podnetd works with the agent of before: READY, version, identity, configure, refusal", async (t) => {
  await using peer = await ScriptedGuest.start();
  const { config } = recordedFrames(1);
  const guest = openGuest({
    channelPath: peer.channelPath,
    ttyPath: peer.ttyPath,
    reattach: false,
  });
  void replay(peer).catch(() => {});
  const identity = await guest.ready(never);
  t.like(identity, { api: 4244, extension: 1, agent: "0.1.0" });
  t.regex(identity.epoch ?? "", /^[0-9a-f-]{36}$/);
  const observed = await guest.configure(config, never);
  const found = observed.interfaces.find(({ mac }) => mac === config.interfaces[0]?.mac);
  t.like(found, { name: "eth7", mtu: 1400, up: true });
  t.deepEqual([...(found?.addresses ?? [])].map(String), ["10.44.0.2/24"]);
  t.is(observed.hostname, "fixture");
  await guest.ping(never);
  const refused = await t.throwsAsync(guest.configure({ ...config, waitMs: 50 }, never), {
    code: "AGENT_REFUSED",
  });
  t.regex(refused.message, /52:54:00:44:00:99/);
  await guest.close();
});
