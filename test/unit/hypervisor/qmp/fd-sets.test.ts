import test from "ava";
import { parseFdSets } from "../../../../hypervisor/qmp/fd-sets.ts";

test("only the sets with the descriptor that is looked for are found", (t) => {
  const answer = [
    { "fdset-id": 0, fds: [{ fd: 3, opaque: "/srv/disk" }] },
    { "fdset-id": 1, fds: [{ fd: 9, opaque: "data-one" }] },
    { "fdset-id": 4, fds: [{ fd: 10 }, { fd: 11, opaque: "data-one" }] },
    { "fdset-id": 5, fds: [] },
  ];
  t.deepEqual(parseFdSets(answer, "data-one"), [1, 4]);
  t.deepEqual(parseFdSets(answer, "data-two"), []);
});

test("an answer that is none, of a QEMU that its guest has taken over, names no set", (t) => {
  const bad = [null, 1, "x", {}, [null, 1, "x", []], [{ fds: [{ opaque: "a" }] }]];
  for (const answer of bad) t.deepEqual(parseFdSets(answer, "a"), []);
  t.deepEqual(parseFdSets([{ "fdset-id": "1", fds: [{ opaque: "a" }] }], "a"), []);
  t.deepEqual(parseFdSets([{ "fdset-id": 1, fds: [null, "a"] }], "a"), []);
});
