import { EventEmitter } from "node:events";
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { guard, guarded, type Place, watchDefects } from "../../../core/guard.ts";
import { Defects } from "../../../daemon/main/defects.ts";
import type { Log, LogFields } from "../../../linux/log.ts";
import { requireNoDefects } from "../../lab/podnetd.ts";

test.serial.afterEach.always(() => watchDefects(undefined));

/** What is reported while `body` runs. */
async function reported(body: () => void | Promise<void>): Promise<string[]> {
  const heard: string[] = [];
  watchDefects((place, thrown) => heard.push(`${place}: ${(thrown as Error).message}`));
  await body();
  return heard;
}

const thrower = (text: string) => (): void => {
  throw new Error(text);
};

test.serial("what a guarded handler throws is reported, and what brought it dropped", async (t) => {
  const dropped: unknown[] = [];
  const emitter = new EventEmitter();
  const handler = (text: string): void => thrower(text)();
  emitter.on(
    "message",
    guarded("dns", handler, (text) => dropped.push(text)),
  );
  t.deepEqual(await reported(() => void emitter.emit("message", "odd")), ["dns: odd"]);
  t.deepEqual(dropped, ["odd"]);
});

test.serial(
  "what a guarded handler's promise rejects with is reported, and rejects no more",
  async (t) => {
    let dropped = 0;
    const rejects = (): Promise<void> => Promise.reject(new Error("late"));
    const heard = await reported(async () => {
      await guard("guest", rejects, () => dropped++);
      guarded("etcd", rejects)();
      await turn();
    });
    t.deepEqual(heard, ["guest: late", "etcd: late"]);
    t.is(dropped, 1);
  },
);

test.serial("a drop that throws as well is reported, and goes no further", async (t) => {
  const heard = await reported(() => guard("api", thrower("first"), thrower("second")));
  t.deepEqual(heard, ["api: first", "api: second"]);
});

test.serial("without a listener an error passes: no test overlooks one", async (t) => {
  t.throws(() => guard("qemu", thrower("seen")), { message: "seen" });
  await t.throwsAsync(
    guard("qemu", () => Promise.reject(new Error("seen"))),
    { message: "seen" },
  );
});

test.serial(
  "a flood of defects is counted whole, and logged once in ten seconds for each place",
  (t) => {
    const lines: LogFields[] = [];
    let now = 0;
    const log = { error: (fields: LogFields) => lines.push(fields) } as unknown as Log;
    using defects = new Defects(log, { monotonic: () => now });
    const meet = (place: Place, times: number): void => {
      for (let n = 0; n < times; n++) guard(place, thrower(`number ${n}`));
    };
    meet("dns", 1000);
    meet("ports", 1);
    now = 9_999;
    meet("dns", 1);
    now = 10_000;
    meet("dns", 1);
    t.deepEqual(
      lines.map(({ place, unlogged }) => [place, unlogged]),
      [
        ["dns", undefined],
        ["ports", undefined],
        ["dns", 1000],
      ],
    );
    t.deepEqual(
      [...defects.counts],
      [
        ["dns", 1002],
        ["ports", 1],
      ],
    );
  },
);

test.serial("a test's end fails when podnetd has logged a defect, as it logs one", (t) => {
  const lines: string[] = [];
  const log = {
    error: (fields: LogFields, msg: string) => lines.push(JSON.stringify({ ...fields, msg })),
  } as unknown as Log;
  t.notThrows(() => requireNoDefects('{"msg":"Pod created"}\n'));
  using defects = new Defects(log, { monotonic: () => 0 });
  guard("dns", thrower("odd"));
  t.is(defects.counts.get("dns"), 1);
  t.throws(() => requireNoDefects(`{"msg":"Pod created"}\n${lines.join("\n")}\n`), {
    message: /met defects of its own:\n.*"place":"dns"/,
  });
});
