/** The thread of one tunnel: it waits for packets, and for word of who the peers are. */
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { takeInto, Waiting } from "../../../linux/files/descriptor.ts";
import { NativeMemory } from "../../../linux/native-memory.ts";
import { noCounters, publish } from "./counters.ts";
import { ready, type TunnelMessage, type TunnelStart } from "./messages.ts";
import { PeerTable } from "./peer-table.ts";
import { Pump } from "./pump.ts";

const { tun, socket, wakeUp, port, answersFrom, shared } = workerData as TunnelStart;
const main = parentPort as NonNullable<typeof parentPort>;
const peers = new PeerTable();
const counters = noCounters();
const pump = new Pump({ tun, socket, port, answersFrom, peers, counters });
const waiting = new Waiting([wakeUp, tun, socket]);
const woken = new NativeMemory(8);

/** Handles the message of the main thread; false if it asks the worker to stop. */
function heed(): boolean {
  takeInto(wakeUp, woken.address, 8);
  for (;;) {
    const message = receiveMessageOnPort(main)?.message as TunnelMessage | undefined;
    if (message === undefined) return true;
    if (message === "stop") return false;
    for (const [network, length] of message.remove) peers.delete(network, length);
    for (const [network, length, host] of message.set) peers.set(network, length, host);
  }
}

/** Runs until it is stopped, or cannot continue: returns the reason then. */
function run(): string | undefined {
  for (;;) {
    if (!waiting.wait()) continue;
    if (waiting.isReady(0) && !heed()) return undefined;
    const broken =
      (waiting.isReady(1) ? pump.send() : undefined) ??
      (waiting.isReady(2) ? pump.receive() : undefined);
    publish(counters, shared);
    if (broken !== undefined) return broken;
  }
}

// oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
main.postMessage(ready);
const reason = run();
if (reason !== undefined) throw new Error(reason);
main.close();
