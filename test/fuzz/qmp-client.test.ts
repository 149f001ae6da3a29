import test from "ava";
import * as fc from "fast-check";
import { isPodnetError } from "../../core/errors.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { event, greeting, startHostileQmp } from "../peers/hostile-qmp.ts";
import { runSeed } from "./engine/random.ts";

const runs = process.env["PODNET_TEST_FULL"] === "1" ? 20_000 : 300;
const seed = runSeed();

/** Valid lines, cut, doubled and with bytes changed. */
const stream = fc
  .array(
    fc.oneof(
      fc.constant({ return: {}, id: 2 }),
      fc.record({ return: fc.jsonValue(), id: fc.integer({ min: -1, max: 4 }) }),
      fc.constant({ error: { class: "GenericError", desc: "no" }, id: 2 }),
      fc.constant(greeting),
      fc.constant(event("STOP", {})),
      fc.jsonValue(),
    ),
    { maxLength: 6 },
  )
  .map((lines) => Buffer.from(lines.map((line) => `${JSON.stringify(line)}\r\n`).join("")));
const damage = fc.array(fc.tuple(fc.nat(400), fc.nat(255)), { maxLength: 4 });

test("whatever a peer sends, every command ends with an answer or a typed error", async (t) => {
  t.timeout(runs * 100 + 60_000);
  t.log(`PODNET_SEED=${seed}, ${runs} runs`);
  await fc.assert(
    fc.asyncProperty(stream, damage, fc.nat(400), async (bytes, changes, cut) => {
      for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
      await using server = await startHostileQmp(async (peer) => {
        await peer.negotiate();
        await peer.nextCommand();
        peer.send(bytes.subarray(0, cut));
        await new Promise(setImmediate);
        peer.send(bytes.subarray(cut));
        peer.end();
      });
      using client = await QmpClient.open(server.path);
      const outcome = await client.execute("query-status", {}).then(
        () => "answered",
        (error: unknown) => isPodnetError(error, "QMP_PROTOCOL", "QMP_FAILED", "QEMU_EXITED"),
      );
      t.truthy(outcome);
    }),
    { numRuns: runs, seed },
  );
});
