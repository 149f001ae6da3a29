import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { connectPodnet } from "../../../api/client.ts";

/** Milliseconds that a call took. */
export async function timed(call: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await call();
  return performance.now() - begin;
}

/**
 * The milliseconds from a change until the last of `count` clients has been sent an event of it,
 * each client on a connection of its own.
 */
export async function fanOut(
  socket: string,
  count: number,
  rounds: number,
  change: () => Promise<unknown>,
): Promise<readonly number[]> {
  const clients = Array.from({ length: count }, () => connectPodnet({ socket }));
  const ended = new AbortController();
  try {
    const streams = clients.map((client) => {
      const events = client.pods.watch({ idOrName: "model" }, { signal: ended.signal });
      return events[Symbol.asyncIterator]();
    });
    // What there is already: one pod, and the mark behind it.
    await Promise.all(streams.map((stream) => following(stream, 2)));
    const took: number[] = [];
    for (let round = -1; round < rounds; round++) {
      const all = Promise.all(streams.map((stream) => following(stream, 1)));
      const ms = await timed(() => Promise.all([change(), all]));
      if (round >= 0) took.push(ms);
    }
    return took;
  } finally {
    ended.abort();
    for (const client of clients) client.close();
  }
}

async function following(stream: AsyncIterator<unknown>, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await stream.next();
}

/** Delay of an event loop, 99th percentile, milliseconds. */
export interface LoopDelays {
  readonly podnetd: number;
  /** Of this process, which only waits for answers: what the load of the machine does by itself. */
  readonly idle: number;
}

/** Both looks come by a timer of 10 ms, which counts in what they find. */
const resolution = 10;

/**
 * The delays of podnetd's event loop while something goes on, by its own metric, which counts from
 * one look to the next.
 */
export async function loopDelays(
  socket: string,
  work: () => Promise<unknown>,
): Promise<LoopDelays> {
  await loopP99(socket);
  const own = monitorEventLoopDelay({ resolution });
  own.enable();
  await work();
  own.disable();
  return {
    podnetd: (await loopP99(socket)) - resolution,
    idle: own.percentile(99) / 1e6 - resolution,
  };
}

async function loopP99(socketPath: string): Promise<number> {
  const asked = request({ socketPath, path: "/metrics" });
  asked.end();
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const page = await text(answer);
  return Number(/^nodejs_eventloop_lag_p99_seconds (\S+)$/m.exec(page)?.[1]) * 1000;
}

/** What a process has in memory, MiB. */
export const residentMib = (pid: number): number =>
  Number(/VmRSS:\s*(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

/** Milliseconds until a socket answers a get, asked again and again. */
export async function untilServing(socket: string): Promise<number> {
  const begin = performance.now();
  for (;;) {
    const podnet = connectPodnet({ socket });
    try {
      await podnet.pods.get({ idOrName: "model" });
      return performance.now() - begin;
    } catch {
      await delay(5);
    } finally {
      podnet.close();
    }
  }
}
