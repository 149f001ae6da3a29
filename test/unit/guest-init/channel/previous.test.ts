import test from "ava";
import type { ExecSession } from "../../../../guest-init/channel/guest.ts";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { type Outcome, recordedFrames, recordedProcesses } from "../../../lab/recorded-frames.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";

const never = new AbortController().signal;

/**
 * Answers every command as the agent of then did, the first of a kind first; the nonce alone is
 * ours.
 */
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

/** What is drawn anew each time: ids of processes and the nonce. */
const drawn = /podnet-exec-[0-9a-f-]{16,36}|(?<="nonce":")[^"]+/g;

/**
 * Says what the agent of then said, when today's podnetd has said what its podnetd did. Answers
 * what differed.
 */
async function replayProcesses(peer: ScriptedGuest): Promise<readonly string[]> {
  const differences: string[] = [];
  const now = new Map<string, string>();
  for (const line of recordedProcesses().lines) {
    if ("stream" in line) {
      if (line.from === "agent") await peer.output(BigInt(line.stream), line.data);
      else {
        const { stream, data } = await peer.input();
        if (stream !== BigInt(line.stream) || !line.data.equals(data))
          differences.push(`stream ${stream}: ${Buffer.from(data).toString()}`);
      }
      continue;
    }
    const then = line.payload.toString("latin1");
    if (line.from === "agent") {
      const payload = then.replaceAll(drawn, (each) => now.get(each) ?? each);
      await peer.say(line.code, Buffer.from(payload, "latin1"));
      continue;
    }
    const { code, payload } = await peer.command();
    const said = Buffer.from(payload).toString("latin1");
    const [ours] = said.match(drawn) ?? [];
    const [theirs] = then.match(drawn) ?? [];
    if (ours !== undefined && theirs !== undefined) now.set(theirs, ours);
    if (code !== line.code || said.replaceAll(drawn, "") !== then.replaceAll(drawn, ""))
      differences.push(`command ${code}: ${said}, then ${line.code}: ${then}`);
  }
  return differences;
}

async function outcomeOf(session: ExecSession): Promise<readonly Outcome[]> {
  const found: Outcome[] = [];
  for await (const event of session.events)
    found.push(
      event.kind === "exit" ? event : { ...event, data: Buffer.from(event.data).toString() },
    );
  return found;
}

/** All of each stream, and the exit: how output was cut into pieces does not matter. */
function joined(events: readonly Outcome[]): object {
  const found: Record<string, string> = {};
  for (const each of events)
    found[each.kind] =
      (found[each.kind] ?? "") + (each.kind === "exit" ? String(each.code) : each.data);
  return found;
}

test("today's podnetd runs processes in an agent of before: input, a signal, a terminal; and powers it off", async (t) => {
  await using peer = await ScriptedGuest.start();
  peer.sayNext = false;
  const { outcomes } = recordedProcesses();
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach: false });
  const replayed = replayProcesses(peer);
  replayed.catch(() => {});
  await guest.ready(never);
  const run = (args: readonly string[], size?: { rows: number; columns: number }) =>
    guest.exec(
      { args, env: { PATH: "/usr/bin:/bin" }, workdir: "/", terminal: size !== undefined, ...size },
      never,
    );
  const cat = await run(["sh", "-c", "cat; echo said >&2; exit 3"]);
  await cat.write(Buffer.from("hello\n"));
  await cat.closeInput();
  t.deepEqual(joined(await outcomeOf(cat)), joined(outcomes.input));
  const sleeper = await run(["sleep", "100"]);
  await sleeper.signal(15);
  await sleeper.closeInput();
  t.deepEqual(joined(await outcomeOf(sleeper)), joined(outcomes.signal));
  const script = "stty size; read x; stty size; echo got $x";
  const terminal = await run(["sh", "-c", script], { rows: 30, columns: 90 });
  const ended = outcomeOf(terminal);
  await terminal.resize(40, 100);
  await terminal.write(Buffer.from("word\n"));
  t.deepEqual(joined(await ended), joined(outcomes.terminal));
  await guest.powerOff(never);
  t.deepEqual(await replayed, []);
  await guest.close();
});
