/**
 * podnet-relay PORT CONTROL CONNECTIONS: takes redirected connections of pods on a port, reads the
 * name that they say, and passes them on when the pod's policy allows it. podnetd says at the unix
 * socket CONTROL what holds. A process of its own, which needs no capability: where it ends, what
 * it would have passed on is closed.
 */
import { systemClock } from "../core/clock.ts";
import { guarded, watchDefects } from "../core/guard.ts";
import { Control } from "./control.ts";
import { RelayServer } from "./relay-server.ts";
import { Verdicts } from "./verdicts.ts";

const [port, control = "", connections] = process.argv.slice(2);

/** Defects that are written down: the file where they go is not to grow without end. */
let writable = 100;

watchDefects((_place, thrown) => {
  if (writable-- <= 0) return;
  const text = thrown instanceof Error ? thrown.stack : String(thrown);
  process.stderr.write(`${JSON.stringify({ defect: text })}\n`);
});

const limits = { connections: Number(connections), ofPod: 1024, undecided: 128 };
const server = new RelayServer(systemClock, limits, (verdict) => verdicts.add(verdict));
const socket = new Control((message) => server.table.apply(message));
const verdicts = new Verdicts(systemClock, (verdict) => socket.send({ type: "verdict", verdict }));
setInterval(
  guarded("relay", () => verdicts.flush()),
  1000,
);
await server.listen(Number(port));
await socket.listen(control);
process.stdout.write("ready\n");
