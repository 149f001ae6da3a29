import { ok } from "node:assert";
import { canonicalName } from "../../../policy/domain.ts";
import { parseFromRelay } from "../../../daemon/policies/relay-report.ts";
import { json, type Target, textOf } from "../engine/target.ts";

const verdict = {
  pod: "webwebwebweb",
  verdict: "deny",
  policy: "p",
  rule: "default",
  reason: "no rule allows it",
  name: "api.example",
  to: { ip: "203.0.113.1", port: 443 },
  count: 3,
};
const { to: _to, ...unplaced } = verdict;

/** What the relay reports, which reads hostile bytes itself. */
export const relayReports: Target = {
  name: "relay-report",
  files: ["daemon/policies/relay-report.ts"],
  seeds: [
    json({ type: "done", seq: 7 }),
    json({ type: "verdict", verdict }),
    json({ type: "verdict", verdict: { ...unplaced, name: null, verdict: "allow" } }),
    json({ type: "verdict", verdict: { ...verdict, to: { ip: "::1", port: 0 } } }),
    json({ type: "verdict", verdict: { ...verdict, name: "a b" } }),
    json({ type: "verdict", verdict: { ...verdict, pod: 1, reason: [] } }),
    json({ type: "verdict", verdict: { ...verdict, verdict: "maybe", count: 0 } }),
    json({ type: "other" }),
    json([]),
  ],
  run: (bytes) => {
    const message = parseFromRelay(textOf(bytes));
    if (message === undefined) return;
    if (message.type === "done") {
      ok(Number.isSafeInteger(message.seq) && message.seq > 0);
      return;
    }
    const { name, count, to, pod } = message.verdict;
    ok(typeof pod === "string" && Number.isSafeInteger(count) && count > 0);
    ok(name === null || canonicalName(name) === name);
    ok(to === undefined || (to.port > 0 && to.port <= 65_535));
  },
};
