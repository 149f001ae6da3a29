import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import test from "ava";
import { joinBytes, u32Bytes } from "../../guest-init/protocol/bytes.ts";
import { command } from "../../guest-init/protocol/codes.ts";
import { encodeCtlFrame } from "../../guest-init/protocol/ctl-frame.ts";
import { encodeTtyFrame } from "../../guest-init/protocol/tty-frame.ts";
import { encodeVersion } from "../../guest-init/protocol/replies.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import { ScriptedGuest } from "../peers/scripted-guest.ts";
import { Random, runSeed } from "./engine/random.ts";

const guests = process.env["PODNET_TEST_FULL"] === "1" ? 3000 : 200;
const seed = runSeed();
const never = new AbortController().signal;
const random = new Random(seed);
const next = (below: number): number => random.below(below);

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/**
 * Bytes in use, garbage taken away: what a process has from the kernel says more of its collector
 * than of leaks.
 */
function held(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const noise = (length: number): Uint8Array => Uint8Array.from({ length }, () => next(256));
const jsons = ["{}", "[]", "null", '{"requestId":"r"}', '{"versions":[1]}', "{", '{"message":"x"}'];

/** Bytes a hostile guest might send at any moment. */
function mischief(): Uint8Array {
  switch (next(7)) {
    case 0:
      return noise(next(40));
    case 1:
      return joinBytes([u32Bytes(next(30)), u32Bytes(next(0xffffffff))]);
    case 2:
      return encodeCtlFrame(command.next, u32Bytes(next(600)));
    case 3:
      return encodeCtlFrame(command.ready);
    case 4:
      return encodeCtlFrame(next(30), noise(next(30)));
    case 5:
      return encodeCtlFrame(next(2) + command.ack, encodeVersion());
    default:
      return encodeCtlFrame(next(30), Buffer.from(jsons[next(jsons.length)] ?? ""));
  }
}

/** Lives a hostile guest's life; what it throws is named by code. */
async function hostile(): Promise<string> {
  const peer = await ScriptedGuest.start();
  const { channelPath, ttyPath } = peer;
  const reattach = next(3) === 0;
  const limits = { readyMs: 300, identifyMs: 200, commandMs: 200, configureMs: 200, frameMs: 200 };
  const guest = openGuest({ channelPath, ttyPath, reattach, limits });
  const closed = new Promise<Error>((resolve) => guest.onClose(resolve));
  if (next(2) === 0) {
    await peer.say(command.ready);
    if (next(3) > 0 && !reattach) {
      const introduced = peer.introduce(next(2) === 0 ? "ours" : "hyperstart");
      // On a machine too slow for these limits the host has hung up meanwhile, and asks nothing
      // more.
      introduced.catch(() => {});
      await Promise.race([introduced, closed]);
    }
  }
  const config = { requestId: "r", interfaces: [], routes: [], neighbours: [], waitMs: 0 };
  const request = { args: ["x"], env: {}, workdir: "/", terminal: next(2) === 0 };
  const drain = async (): Promise<void> => {
    const session = await guest.exec(request, never);
    await session.write(noise(100));
    for await (const event of session.events) if (event.kind === "exit") return;
  };
  const calls = Promise.allSettled([
    guest.configure(config, never),
    guest.ping(never),
    drain(),
    guest.ready(never),
  ]);
  for (let i = 0; i < 30; i++) {
    if (next(4) === 0)
      await peer.rawTty(
        next(2) === 0 ? noise(next(30)) : encodeTtyFrame(BigInt(next(4)), noise(9)),
      );
    else await peer.raw(mischief());
    if (next(8) === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  if (next(2) === 0) peer.hangUp();
  const timeout = new Promise<void>((resolve) => setTimeout(resolve, 1000));
  await Promise.race([closed, timeout]);
  await guest.close();
  for (const call of await calls)
    if (call.status === "rejected" && (call.reason as Error).name !== "PodnetError")
      throw call.reason;
  const reason = await closed;
  await peer[Symbol.asyncDispose]();
  return (reason as Error & { code: string }).code;
}

test(`${guests} hostile guests: each loses its channel, an honest one keeps its own`, async (t) => {
  t.timeout(guests * 500 + 60_000);
  t.log(`PODNET_SEED=${seed}`);
  await using peer = await ScriptedGuest.start();
  const { channelPath, ttyPath } = peer;
  const honest = openGuest({ channelPath, ttyPath, reattach: false });
  await peer.say(command.ready);
  await peer.introduce("ours");
  const codes = new Map<string, number>();
  let before = 0;
  for (let begun = 0; begun < guests; begun += 20) {
    // (What is made once and kept is there by then.)
    if (begun === 100) before = held();
    const some = Promise.all(Array.from({ length: Math.min(20, guests - begun) }, hostile));
    const pinged = honest.ping(never);
    await peer.command(command.ping);
    await peer.say(command.ack);
    await pinged;
    for (const code of await some) codes.set(code, (codes.get(code) ?? 0) + 1);
  }
  t.log(JSON.stringify(Object.fromEntries(codes)));
  for (const code of codes.keys())
    t.true(
      [
        "AGENT_PROTOCOL",
        "AGENT_TIMEOUT",
        "AGENT_DISCONNECTED",
        "UNSUPPORTED",
        "CANCELLED",
      ].includes(code),
      code,
    );
  t.true((codes.get("AGENT_PROTOCOL") ?? 0) > guests / 4);
  const kept = held() - before;
  t.log(`${kept >> 10} KiB more are held`);
  t.true(kept < (4 << 20) + guests * 2048, `${kept} bytes more are held`);
  await honest.close();
});
