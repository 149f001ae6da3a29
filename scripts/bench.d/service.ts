/**
 * What services cost: connections per second through a service of 1, 10 and 1,000 backends, next to
 * one rule that translates to a backend directly (DNAT), in turns; and a change of a service with
 * 1,000 backends next to one with 1, from the API's call to its answer.
 *   scripts/bench service [ROUNDS]
 */
import { lastLine } from "../measure.ts";
import { measureServiceChanges } from "./service/changes.ts";
import { measureServiceConnections } from "./service/connections.ts";

export const description = "Services: connections a second next to a direct DNAT, and changes";

const rounds = Number(process.argv[2] ?? 7);
const connections = await measureServiceConnections(rounds);
const changes = await measureServiceChanges(rounds * 5);
console.log(lastLine("service", { ...connections, ...changes }));
