import test from "ava";
import { History } from "./fixtures/history.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 30));
const histories = Number(process.env["PODNET_HISTORIES"] ?? (full ? 10_000 : 250));

test("hosts keep their leases through whatever happens", (t) => {
  t.timeout(full ? 3_600_000 : 60_000);
  let steps = 0;
  for (let i = 0; i < histories; i++) {
    const history = new History(seed + i);
    try {
      history.run();
    } catch (error) {
      const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
      t.fail(`PODNET_SEED=${seed + i} PODNET_HISTORIES=1: ${what}`);
      return;
    }
    steps += history.steps;
  }
  t.log(`PODNET_SEED=${seed}: ${histories} histories, ${steps} steps`);
  t.true(steps > histories * 20);
});
