import test from "ava";
import { exhaustedTooSoon, heldTwice } from "./addresses.ts";
import type { Operation } from "./operation.ts";
import { certainly, maybe, refusedFree } from "./operations.ts";
import { type Call, lifecycle, type Outcome, type Phase } from "./history.ts";
import { unexplained, unexplainedOf } from "./linearizability.ts";
import { mergeRequests } from "./requests.ts";

/** A call of the pod `p`. */
const call = (invoked: number, returned: number, outcome: Outcome, name = "p"): Call => ({
  invoked,
  returned,
  name,
  outcome,
  by: "test",
});
const created = (id = "a"): Outcome => ({ kind: "created", id });
const deleted = (id = "a"): Outcome => ({ kind: "deleted", id });
const did = (what: keyof typeof lifecycle, id = "a"): Outcome => {
  const { takes: _takes, ...became } = lifecycle[what];
  return { kind: "became", id, ...became };
};
const busy = (what: keyof typeof lifecycle): Outcome => ({
  kind: "busy",
  takes: lifecycle[what].takes,
});
const seen = (phase: Phase, id = "a"): Outcome => ({
  kind: "seen",
  id,
  phase,
});
const absent: Outcome = { kind: "absent" };
const taken: Outcome = { kind: "taken" };
const cut: Outcome = { kind: "cut" };

const explained: readonly (readonly [string, readonly Call[]])[] = [
  ["nothing", []],
  ["a life", [call(0, 2, created()), call(3, 4, seen("running")), call(5, 7, deleted())]],
  ["a look before anything", [call(0, 1, absent), call(2, 3, created())]],
  ["a create seen while it is under way", [call(0, 9, created()), call(1, 2, seen("creating"))]],
  [
    "looks that overlap the end of a create, one on each side",
    [call(0, 5, created()), call(4, 8, seen("creating")), call(4, 6, seen("running"))],
  ],
  ["two creates of which one is refused", [call(0, 9, created()), call(1, 3, taken)]],
  ["a create refused although it began first", [call(0, 9, taken), call(1, 3, created())]],
  [
    "two deletes of one pod, both of which found it",
    [call(0, 1, created()), call(2, 9, deleted()), call(3, 9, deleted())],
  ],
  [
    "a delete that found it, and one that came too late",
    [call(0, 1, created()), call(2, 5, deleted()), call(4, 9, absent)],
  ],
  ["a create cut short by a delete", [call(0, 5, cut), call(1, 6, deleted())]],
  [
    "a cut create, seen before by its id",
    [call(0, 5, cut), call(1, 2, seen("creating")), call(3, 6, deleted())],
  ],
  [
    "a delete that came too late to cut the create",
    [call(0, 5, created()), call(1, 7, deleted()), call(6, 7, seen("deleting"))],
  ],
  [
    "a successor of the same name",
    [
      call(0, 1, created()),
      call(2, 6, deleted()),
      call(3, 4, seen("deleting")),
      call(5, 9, created("b")),
      call(10, 11, seen("running", "b")),
    ],
  ],
  [
    "a delete of the predecessor that ends after the successor began",
    [call(0, 1, created()), call(2, 9, deleted()), call(3, 8, deleted()), call(4, 9, created("b"))],
  ],
  [
    "a life with everything in it",
    [
      call(0, 1, created()),
      call(2, 3, did("pause")),
      call(4, 5, seen("paused")),
      call(6, 7, busy("start")),
      call(8, 9, did("resume")),
      call(10, 14, did("stop")),
      call(11, 12, seen("stopping")),
      call(15, 16, busy("pause")),
      call(17, 20, did("start")),
      call(18, 19, seen("creating")),
      call(21, 22, did("stop")),
      call(23, 24, deleted()),
    ],
  ],
  [
    "a pause that found it paused, and did it once more",
    [
      call(0, 1, created()),
      call(2, 3, did("pause")),
      call(4, 9, did("pause")),
      call(5, 6, did("resume")),
      call(10, 11, seen("paused")),
    ],
  ],
  [
    "a start cut short by a delete",
    [
      call(0, 1, created()),
      call(2, 3, did("stop")),
      call(4, 8, { kind: "halted" }),
      call(5, 6, seen("creating")),
      call(7, 10, deleted()),
      call(8, 9, seen("failed")),
    ],
  ],
  [
    "a delete that was under way before the start that it cut short",
    [
      call(0, 1, created()),
      call(2, 3, did("stop")),
      call(4, 12, deleted()),
      call(5, 6, seen("stopped")),
      call(7, 9, { kind: "halted" }),
      call(8, 10, seen("failed")),
    ],
  ],
  ["no address, whatever there is", [call(0, 1, { kind: "exhausted" }), call(2, 3, absent)]],
];

const refused: readonly (readonly [string, readonly Call[]])[] = [
  ["two pods of one name", [call(0, 1, created()), call(2, 3, created("b"))]],
  ["two pods of one name, side by side", [call(0, 3, created()), call(1, 4, created("b"))]],
  ["a create refused without a holder", [call(0, 1, taken), call(2, 3, created())]],
  ["a pod that was never created", [call(0, 1, seen("running"))]],
  ["a pod that is lost", [call(0, 1, created()), call(2, 3, absent)]],
  [
    "a delete that finds nothing of what is there",
    [call(0, 1, created()), call(2, 3, absent), call(4, 5, seen("running"))],
  ],
  ["a delete of what never was", [call(0, 1, deleted())]],
  [
    "a pod deleted twice, one after the other",
    [call(0, 1, created()), call(2, 3, deleted()), call(4, 5, deleted())],
  ],
  [
    "a pod that comes back",
    [call(0, 1, created()), call(2, 3, deleted()), call(4, 5, seen("running"))],
  ],
  ["a stale look", [call(0, 1, created()), call(2, 3, seen("creating"))]],
  [
    "a look that goes back in time",
    [call(0, 9, created()), call(1, 2, seen("running")), call(3, 4, seen("creating"))],
  ],
  [
    "a create that is done although nothing runs",
    [call(0, 2, created()), call(3, 4, seen("creating"))],
  ],
  [
    "a pause of what never runs",
    [call(0, 1, created()), call(2, 3, did("stop")), call(4, 5, did("pause"))],
  ],
  [
    "one that is paused and runs",
    [call(0, 1, created()), call(2, 3, did("pause")), call(4, 5, seen("running"))],
  ],
  ["a refusal of what can be done", [call(0, 1, created()), call(2, 3, busy("pause"))]],
  [
    "a stop that is done while it stops",
    [call(0, 1, created()), call(2, 3, did("stop")), call(4, 5, seen("stopping"))],
  ],
  [
    "a start cut short without a stop",
    [call(0, 1, created()), call(2, 3, did("stop")), call(4, 8, { kind: "halted" })],
  ],
  [
    "a resume of another pod",
    [call(0, 1, created()), call(2, 3, did("pause")), call(4, 5, did("resume", "b"))],
  ],
  ["a create cut short without a delete", [call(0, 5, cut)]],
  ["a create cut short by a delete that came later", [call(0, 5, cut), call(6, 7, deleted())]],
  [
    "a cut create that left something",
    [call(0, 5, cut), call(1, 4, deleted()), call(6, 7, seen("creating"))],
  ],
  ["another pod's id", [call(0, 1, created()), call(2, 3, seen("running", "b"))]],
  [
    "the predecessor's id",
    [
      call(0, 1, created()),
      call(2, 3, deleted()),
      call(4, 5, created("b")),
      call(6, 7, seen("running")),
    ],
  ],
  [
    "a name that is taken after its pod was deleted",
    [call(0, 1, created()), call(2, 3, deleted()), call(4, 5, taken)],
  ],
  [
    "two ids for a pod that was cut short",
    [
      call(0, 9, cut),
      call(1, 2, seen("creating", "a")),
      call(3, 4, seen("creating", "b")),
      call(5, 9, deleted("b")),
    ],
  ],
];

for (const [what, calls] of explained)
  test(`explained: ${what}`, (t) => {
    t.is(unexplained(calls), undefined);
    // The order of the reports does not matter.
    t.is(unexplained(calls.toReversed()), undefined);
  });

for (const [what, calls] of refused)
  test(`refused: ${what}`, (t) => {
    t.regex(unexplained(calls) ?? "", /cannot be explained/);
    t.regex(unexplained(calls.toReversed()) ?? "", /cannot be explained/);
  });

test("names are checked by themselves, and one that is wrong is found among many", (t) => {
  const good = ["x", "y", "z"].flatMap((name) => [
    call(0, 4, created(name), name),
    call(2, 6, seen("running", name), name),
    call(7, 8, deleted(name), name),
  ]);
  t.is(unexplainedOf(good), undefined);
  t.regex(unexplainedOf([...good, call(9, 10, seen("running", "y"), "y")]) ?? "", / y: /);
});

test("many calls at a time are checked in a bounded time", (t) => {
  const lookers = Array.from({ length: 64 }, (_, i) =>
    call(i / 100, 10 - i / 100, i % 2 === 0 ? seen("running") : absent),
  );
  t.is(unexplained([...lookers, call(1, 9, created())]), undefined);
  const deleters = Array.from({ length: 8 }, (_, i) => call(11 + i / 10, 20, deleted()));
  t.is(unexplained([call(1, 9, created()), ...deleters]), undefined);
  t.truthy(unexplained([...deleters, call(30, 31, absent)]));
});

test("requests: one create, one answer", (t) => {
  const asked = (invoked: number, returned: number, outcome: Outcome) => ({
    ...call(invoked, returned, outcome),
    requestId: "r",
  });
  const twice = mergeRequests([
    asked(0, 4, created()),
    asked(1, 6, created()),
    asked(8, 9, absent),
  ]);
  t.deepEqual(twice.wrong, []);
  t.like(twice.calls, { 0: { invoked: 0, returned: 4 }, length: 1 });
  t.is(mergeRequests([asked(0, 4, created()), asked(1, 6, created("b"))]).wrong.length, 1);
  t.is(mergeRequests([asked(0, 4, created()), asked(1, 6, cut)]).wrong.length, 1);
  t.is(mergeRequests([asked(0, 4, absent)]).wrong.length, 1);
  const anew = mergeRequests([asked(0, 1, taken), asked(2, 6, created())]);
  t.deepEqual([anew.wrong.length, anew.calls.length], [0, 2]);
  t.is(mergeRequests([asked(0, 4, created()), asked(5, 6, taken)]).wrong.length, 1);
});

test("an address held by two pods at a time is found, one after the other is not", (t) => {
  const holding = (id: string, from: number, until: number, address = "192.0.2.2") => ({
    address,
    id,
    from,
    until,
  });
  t.deepEqual(heldTwice([holding("a", 0, 5), holding("b", 5, 9), holding("c", 1, 9, "other")]), []);
  t.is(heldTwice([holding("a", 0, 5), holding("b", 4, 9)]).length, 1);
  t.is(heldTwice([holding("a", 0, 50), holding("b", 60, 61), holding("c", 10, 20)]).length, 1);
});

test("no address left is believed only when all of them may have been held at one moment", (t) => {
  const exhausted = call(4, 6, { kind: "exhausted" }, "x");
  const lives = (from: number, until: number, id: string): Call[] => [
    call(from, from + 1, created(id), id),
    call(until - 1, until, deleted(id), id),
  ];
  const both = [...lives(0, 9, "a"), ...lives(0, 9, "b")];
  t.deepEqual(exhaustedTooSoon([...both, exhausted], 2), []);
  t.is(exhaustedTooSoon([...both, exhausted], 3).length, 1);
  t.is(exhaustedTooSoon([...lives(0, 9, "a"), ...lives(0, 3, "b"), exhausted], 2).length, 1);
  t.is(exhaustedTooSoon([...lives(0, 9, "a"), ...lives(7, 9, "b"), exhausted], 2).length, 1);
  t.deepEqual(exhaustedTooSoon([...lives(0, 5, "a"), ...lives(4.5, 9, "b"), exhausted], 2), []);
  t.is(exhaustedTooSoon([...lives(0, 4.5, "a"), ...lives(5, 9, "b"), exhausted], 2).length, 1);
  t.deepEqual(exhaustedTooSoon([call(0, 5, cut, "c"), ...lives(0, 9, "a"), exhausted], 2), []);
});

test("ports and addresses of interfaces: held by one at a time, and refused only when they may be held", (t) => {
  const operation = (
    kind: Operation["kind"],
    invoked: number,
    returned: number,
    id = "a",
  ): Operation => ({
    kind,
    invoked,
    returned,
    name: `pod ${id}`,
    id: kind === "took" || kind === "gave" ? id : undefined,
    what: "port 9000",
    ...(kind === "took" ? { thing: "port 9000" } : {}),
  });
  const took = operation("took", 0, 2);
  t.like(certainly([took], []), { 0: { from: 2, until: Infinity }, length: 1 });
  t.like(certainly([took, operation("gave", 5, 7)], []), { 0: { until: 5 } });
  t.like(certainly([took, operation("unclear", 4, 7)], []), { 0: { until: 4 } });
  t.deepEqual(
    certainly([took, operation("gave", 1, 7)], []),
    [],
    "given away maybe before the answer",
  );
  t.like(certainly([took], [call(6, 8, deleted())]), { 0: { until: 6 } });
  t.is(heldTwice(certainly([took, operation("took", 3, 4, "b")], [])).length, 1);
  t.deepEqual(
    heldTwice(certainly([took, operation("gave", 3, 6), operation("took", 4, 7, "b")], [])),
    [],
  );
  t.like(maybe([took], [call(6, 8, deleted())]), { 0: { from: 0, until: 8 } });
  t.deepEqual(refusedFree([took, operation("refused", 3, 4, "b")], []), []);
  t.is(refusedFree([operation("refused", 3, 4, "b")], []).length, 1);
  t.is(refusedFree([took, operation("gave", 3, 5), operation("refused", 6, 7, "b")], []).length, 1);
});
