import test from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import { shown } from "../../../../core/shown.ts";
import { Callers } from "../../../../daemon/listeners/callers.ts";
import type { Peer } from "../../../../daemon/listeners/peer.ts";
import { Tally } from "../../../../daemon/events/tally.ts";
import { type Log, openLog } from "../../../../linux/log.ts";
import { LoopTurns } from "../../../../linux/loop-turns.ts";
import { rootOnly, usualLimits } from "../../api/fixtures/limits.ts";

const user = (uid: number): Peer => ({ kind: "unix", pid: 1, uid, gid: uid, groups: [] });

/** Callers at a time that the test sets. */
function callersAt(limits: Partial<typeof usualLimits>) {
  const time = { ms: 0 };
  const clock = { now: () => time.ms, monotonic: () => time.ms };
  const callers = new Callers({
    access: rootOnly,
    limits: { ...usualLimits, ...limits },
    clock,
    turns: new LoopTurns(clock),
  });
  return { time, callers };
}

const refusal = (body: () => unknown): string => {
  try {
    body();
  } catch (thrown) {
    if (isPodnetError(thrown, "LIMIT_REACHED")) return String(thrown.details["limit"]);
    throw thrown;
  }
  return "none";
};

test("what one caller uses up is not taken from another", (t) => {
  const limits = { requestsPerS: 2, requestsPerCaller: 100, connectionsPerCaller: 1 };
  const { callers } = callersAt(limits);
  const [hostile, other] = [callers.caller(user(1)), callers.caller(user(2))];
  for (let i = 0; i < 4; i++) hostile.request()[Symbol.dispose]();
  t.is(
    refusal(() => hostile.request()),
    "limits.requests_per_s",
  );
  // Another connection of the same user is the same caller.
  t.is(
    refusal(() => callers.caller(user(1)).request()),
    "limits.requests_per_s",
  );
  hostile.connection();
  t.is(
    refusal(() => hostile.connection()),
    "limits.connections_per_caller",
  );
  other.connection();
  for (let i = 0; i < 4; i++) other.request()[Symbol.dispose]();
});

test("tokens come back with time, and no more of them than fit", (t) => {
  const { callers, time } = callersAt({ requestsPerS: 10 });
  const caller = callers.caller(user(1));
  const burst = (): number => {
    for (let i = 0; ; i++) if (refusal(() => caller.request()) !== "none") return i;
  };
  t.is(burst(), 20);
  time.ms += 500;
  t.is(burst(), 5);
  time.ms += 3_600_000;
  t.is(burst(), 20);
});

test("new connections: a burst of twice the rate, then so many a second, and another has its own", (t) => {
  const { callers, time } = callersAt({ connectionsPerS: 10 });
  const caller = callers.caller(user(1));
  const burst = (): number => {
    for (let i = 0; i < 100; i++) {
      if (refusal(() => caller.connection()[Symbol.dispose]()) !== "none") return i;
    }
    return Infinity;
  };
  t.is(burst(), 20);
  t.is(
    refusal(() => caller.connection()),
    "limits.connections_per_s",
  );
  callers.caller(user(2)).connection();
  time.ms += 500;
  t.is(burst(), 5);
});

test("a caller cannot be forgotten into fresh tokens by others who call", (t) => {
  const { callers } = callersAt({ requestsPerS: 1 });
  const caller = callers.caller(user(1));
  // Nothing of it is under way: only its tokens distinguish it from a newcomer.
  for (let i = 0; i < 2; i++) caller.request()[Symbol.dispose]();
  for (let uid = 2; uid < 3000; uid++) callers.caller(user(uid));
  t.is(
    refusal(() => callers.caller(user(1)).request()),
    "limits.requests_per_s",
  );
});

test("creates: so many of one caller, given back once", (t) => {
  const { callers } = callersAt({ createsPerCaller: 2 });
  const caller = callers.caller(user(1));
  const [one] = [caller.create(), caller.create()];
  t.is(
    refusal(() => caller.create()),
    "limits.creates_per_caller",
  );
  one[Symbol.dispose]();
  one[Symbol.dispose]();
  caller.create();
  t.is(
    refusal(() => caller.create()),
    "limits.creates_per_caller",
  );
});

test("captures: so many of one caller, given back once, and another has its own", (t) => {
  const { callers } = callersAt({ capturesPerCaller: 1 });
  const caller = callers.caller(user(1));
  const held = caller.capture();
  t.is(
    refusal(() => callers.caller(user(1)).capture()),
    "limits.captures_per_caller",
  );
  callers.caller(user(2)).capture();
  held[Symbol.dispose]();
  held[Symbol.dispose]();
  caller.capture();
  t.is(
    refusal(() => caller.capture()),
    "limits.captures_per_caller",
  );
});

test("a flood is counted whole and logged in one line", (t) => {
  const reported: unknown[] = [];
  const log = { warn: (fields: unknown) => reported.push(fields) } as unknown as Log;
  const counted: string[] = [];
  const tally = new Tally(log, "Dropped", (reason) => counted.push(reason));
  for (let i = 0; i < 1000; i++) tally.count("x");
  t.is(counted.length, 1000);
  t.deepEqual(reported, [{ counts: { x: 1 } }]);
  tally.close();
  t.deepEqual(reported[1], { counts: { x: 999 } });
});

const hostile = 'a\u001b[2J\r\n{"x":1}\u0000\u009b1m\u202e\u200b\ufeff\u2028\ud800"';

test("a log's lines hold nothing that steers, however deep it lies, and have an end", (t) => {
  const lines: string[] = [];
  const log = openLog({
    component: "test",
    to: { write: (line: string) => void lines.push(line) },
  });
  const error = new Error(hostile.repeat(100_000));
  log
    .with({ child: hostile })
    .error({ err: error, deep: { list: [{ [hostile]: hostile }] } }, hostile);
  log.warn({ pod_id: "y".repeat(1 << 20) }, hostile.repeat(100_000));
  t.is(lines.length, 2);
  for (const line of lines) {
    t.notRegex(line.slice(0, -1), /[\u0000-\u001f\u007f-\u009f\u200b\u2028\u202e\ufeff]/);
    // In what the line says, too: a reader who decodes the JSON is not steered either, but for a
    // stack's lines.
    const { err, ...rest } = JSON.parse(line) as Record<string, unknown>;
    t.notRegex(Object.values(rest).map(String).join(""), /[\u0000-\u001f\u009b\u202e]/);
    t.true(line.length < 50_000, typeof err);
  }
});

test("text that may be shown comes out as it is, however often it goes through", (t) => {
  const once = shown(hostile);
  t.is(shown(once), once);
  t.is(shown('Plain "text", ümläut, 漢字, 😀'), 'Plain "text", ümläut, 漢字, 😀');
  t.is(shown("😀".repeat(10), 6), `${"😀".repeat(2)}…`);
  t.true(shown("\u0000".repeat(1 << 20)).length <= 4096);
});
