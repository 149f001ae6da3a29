import test from "ava";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { encodeNext } from "../../../../guest-init/protocol/ctl-frame.ts";
import { encodeVersion } from "../../../../guest-init/protocol/replies.ts";
import { encodeHelloReply } from "../../../../guest-init/protocol/extension-messages.ts";
import { closes, met, never, pair } from "./fixtures/session.ts";

test("READY again: what waits fails, the agent is asked anew, listeners hear of it", async (t) => {
  await using both = await met("ours");
  const { peer, guest } = both;
  const again = new Promise((resolve) => guest.onReady(resolve));
  const pinged = guest.ping(never);
  await peer.command(command.ping);
  await peer.say(command.ready);
  await t.throwsAsync(pinged, { code: "AGENT_DISCONNECTED" });
  // A command sent now waits for the new agent, and an answer of the old one's does not confuse it.
  const next = guest.ping(never);
  await peer.say(command.ack);
  await peer.introduce("hyperstart");
  t.deepEqual(await again, { api: 4244, extension: undefined, agent: undefined });
  await peer.command(command.ping);
  await peer.say(command.ack);
  await t.notThrowsAsync(next);
  t.is(guest.counters().staleReplies, 1);
});

test("READY twice at the start is one agent that restarted", async (t) => {
  await using both = await pair();
  const { peer, guest } = both;
  let heard = 0;
  guest.onReady(() => heard++);
  await peer.say(command.ready);
  await peer.command(command.getVersion);
  await peer.say(command.ready);
  await peer.introduce("ours");
  t.is((await guest.ready(never)).extension, 1);
  t.is(heard, 1);
});

for (const [what, codes] of [
  ["an identity half asked for", [command.ack, command.error, command.ack]],
  ["a version and a refusal", [command.ack, command.error]],
  ["a version alone", [command.ack]],
  ["pongs and versions", [command.ping, command.ack, command.ping, command.ack, command.ack]],
] as const)
  for (const as of ["ours", "hyperstart"] as const)
    test(`reattaching: ${what}, left over, does not confuse who is ${as}`, async (t) => {
      await using both = await pair({ reattach: true });
      const { peer, guest } = both;
      await peer.command(command.getVersion);
      await peer.raw(encodeNext(77));
      // ACKs here are versions, but for those of PINGs.
      for (const code of codes)
        if (code === command.ack) await peer.say(command.ack, encodeVersion());
        else await peer.say(code === command.ping ? command.ack : code);
      await peer.say(command.ack, encodeVersion());
      await peer.introduce(as);
      t.is((await guest.ready(never)).extension, as === "ours" ? 1 : undefined);
      // Whatever comes from now on is an answer to what was asked.
      const pinged = guest.ping(never);
      await peer.command(command.ping);
      await peer.say(command.ack);
      await t.notThrowsAsync(pinged);
    });

test("an identity given to another host is not believed", async (t) => {
  await using both = await pair();
  await both.peer.say(command.ready);
  await both.peer.version();
  await both.peer.command(command.hello);
  const stale = { version: 1, agent: "old", epoch: "e", nonce: "n" };
  await both.peer.say(command.ack, encodeHelloReply(stale));
  await closes(t, both, "AGENT_PROTOCOL");
});

test("reattaching to a silent guest ends in AGENT_TIMEOUT, and asks it no more than once", async (t) => {
  await using both = await pair({ reattach: true, limits: { identifyMs: 200 } });
  await both.peer.command(command.getVersion);
  await closes(t, both, "AGENT_TIMEOUT");
  t.is(both.peer.waiting, 0);
});

test("reattaching copes with a READY that was queued, and reports it", async (t) => {
  await using both = await pair({ reattach: true });
  const { peer, guest } = both;
  const again = new Promise((resolve) => guest.onReady(resolve));
  await peer.command(command.getVersion);
  await peer.say(command.ready);
  await peer.say(command.ack, encodeVersion());
  await peer.introduce("ours");
  t.is((await guest.ready(never)).extension, 1);
  await t.notThrowsAsync(again);
});
