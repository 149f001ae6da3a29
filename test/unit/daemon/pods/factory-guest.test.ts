import test from "ava";
import { awaitTemplateGuest } from "../../../../daemon/pods/guest/template-guest.ts";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import type { RunningVm } from "../../../../hypervisor/driver.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;

/** A machine around a guest: the two sockets, and a console that has said something. */
const around = (peer: ScriptedGuest): RunningVm =>
  ({
    socketPath: (which: "channel" | "tty") =>
      which === "channel" ? peer.channelPath : peer.ttyPath,
    consoleTail: () => Buffer.from("console tail\n"),
  }) as unknown as RunningVm;

test("only a guest whose init is an agent that knows AWAKE becomes a template", async (t) => {
  for (const [features, as, who] of [
    [["awake"], "ours", undefined],
    [["awake", "later"], "ours", undefined],
    // An agent alongside another init, and one of a podnet before templates.
    [[], "ours", /an agent that is not the guest's init, or older/],
    [undefined, "ours", /an agent that is not the guest's init, or older/],
    [undefined, "hyperstart", /plain hyperstart/],
  ] as const) {
    await using peer = await ScriptedGuest.start();
    peer.features = features;
    const waiting = awaitTemplateGuest(openGuest, 10_000)(around(peer), never);
    await peer.say(command.ready);
    const introduced = peer.introduce(as);
    if (who === undefined) await (await waiting)[Symbol.asyncDispose]();
    else
      t.like(await t.throwsAsync(waiting, { message: who }), {
        code: "UNSUPPORTED",
        field: "boot.factory",
      });
    await introduced;
  }
});

test("a guest that is silent: AGENT_TIMEOUT with its console tail; one that ends: why it did", async (t) => {
  await using silent = await ScriptedGuest.start();
  const error = await t.throwsAsync(awaitTemplateGuest(openGuest, 20)(around(silent), never));
  t.like(error, { code: "AGENT_TIMEOUT", details: { console: "console tail" } });

  await using ending = await ScriptedGuest.start();
  const end = new AbortController();
  const waiting = awaitTemplateGuest(openGuest, 10_000)(around(ending), end.signal);
  await ending.say(command.ready);
  await ending.command(command.getVersion);
  ending.hangUp();
  end.abort(new Error("The machine ended: signal 9"));
  await t.throwsAsync(waiting, { message: "The machine ended: signal 9" });
});
