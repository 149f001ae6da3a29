import test from "ava";
import { cut, parseTimes, type Stage, usual } from "../../../scripts/bench.d/profile/timeline.ts";

const stages: readonly Stage[] = [
  { title: "planned", until: "commit:claim:after", party: "daemon" },
  { title: "restored", until: "qmp:migrate-incoming:after", party: "QEMU" },
  { title: "booted", until: "channel:hello:before", party: "guest" },
  { title: "answered", party: "daemon" },
];

test("what podnetd writes is read, but for a line that is not complete", (t) => {
  t.deepEqual(parseTimes("12.345678 commit:claim:before\n12.4 qmp:query block:after\n12.5 ne"), [
    { at: 12345.678, name: "commit:claim:before" },
    { at: 12400, name: "qmp:query block:after" },
  ]);
});

test("parts follow one another, sum up to the call, and share out their time", (t) => {
  const marks = [
    { at: 101, name: "commit:claim:before" },
    { at: 103, name: "commit:claim:after" },
    { at: 105, name: "qmp:cont:before" },
    { at: 108, name: "netlink:add:before" },
    { at: 109, name: "netlink:add:failed" },
    { at: 115, name: "qmp:cont:after" },
    { at: 120, name: "channel:hello:before" },
    { at: 121, name: "channel:hello:after" },
  ];
  const parts = cut(stages, marks, [100, 130]);
  const none = { daemon: 0, QEMU: 0, guest: 0, kernel: 0, program: 0 };
  t.deepEqual(parts, [
    {
      title: "planned",
      party: "daemon",
      from: 0,
      to: 3,
      shares: { ...none, daemon: 1, kernel: 2 },
    },
    // Nothing was restored.
    {
      title: "booted",
      party: "guest",
      from: 3,
      to: 20,
      shares: { ...none, guest: 7, QEMU: 9, kernel: 1 },
    },
    {
      title: "answered",
      party: "daemon",
      from: 20,
      to: 30,
      shares: { ...none, guest: 1, daemon: 9 },
    },
  ]);
});

test("marks of other calls do not count", (t) => {
  const marks = [
    { at: 90, name: "commit:claim:after" },
    { at: 140, name: "channel:hello:before" },
  ];
  t.deepEqual(
    cut(stages, marks, [100, 130]).map(({ title, from, to }) => [title, from, to]),
    [["answered", 0, 30]],
  );
});

test("what is usual is the median of each part", (t) => {
  const call = (length: number) => cut([{ title: "all", party: "guest" }], [], [0, length]);
  const [part] = usual([call(3), call(90), call(5)]);
  t.is(part?.to, 5);
  t.is(part?.shares.guest, 5);
});

test("a part that less than half of the calls have is not usual", (t) => {
  const marks = [{ at: 1, name: "commit:claim:after" }];
  const rare = cut(stages, marks, [0, 10]);
  const often = cut(stages, [], [0, 10]);
  const titles = (calls: readonly (typeof rare)[]) => usual(calls).map(({ title }) => title);
  t.deepEqual(titles([often, rare, often]), ["answered"]);
  t.deepEqual(titles([often, rare]), ["planned", "answered"]);
});
