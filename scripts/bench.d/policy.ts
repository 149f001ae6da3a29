/**
 * What the guard and policies cost: throughput and latency of a pod, and of a guest, next to a host
 * without their tables; elements by our messages and by libnftables; a change on a host with one
 * pod and on a host with 1,000 others; how soon a flow is cut whose rule is revoked; and the relay
 * for names next to a direct connection. Rounds take turns, so that the machine's noise falls on
 * both.
 *   scripts/bench policy [ROUNDS]
 */
import { lastLine } from "../measure.ts";
import { measureChanges } from "./policy/changes.ts";
import { measureElements } from "./policy/elements.ts";
import { measureGuest } from "./policy/guest.ts";
import { measureRelay } from "./policy/relay.ts";
import { measureTraffic } from "./policy/traffic.ts";

export const description = "Guard, policies and the relay: traffic, changes, cuts; without them";

const rounds = Number(process.argv[2] ?? 5);
const changes = await measureChanges(rounds);
const elements = await measureElements(rounds);
const traffic = await measureTraffic(rounds);
const guest = await measureGuest(rounds);
const relay = await measureRelay(rounds);
console.log(lastLine("policy", { ...traffic, ...guest, ...changes, ...elements, ...relay }));
