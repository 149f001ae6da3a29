import test from "ava";
import { SharedAbortController } from "../../../../daemon/main/shared-abort.ts";

test("signals aborted without a reason share Node's own, and others keep theirs", (t) => {
  const [one, two, three] = [1, 2, 3].map(() => new SharedAbortController()) as [
    AbortController,
    AbortController,
    AbortController,
  ];
  const node = new AbortController();
  node.abort();
  one.abort();
  two.abort(undefined);
  three.abort("mine");
  const reason = one.signal.reason as DOMException;
  t.is(two.signal.reason, reason);
  t.is(reason.name, node.signal.reason.name);
  t.is(reason.message, node.signal.reason.message);
  t.is(reason.code, node.signal.reason.code);
  t.is(three.signal.reason, "mine");
  t.true(one.signal.aborted && one instanceof AbortController);
});
