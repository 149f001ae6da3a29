import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { messageFaults } from "../../../scripts/commit-message.ts";

const body = "\n\nIt was wrong because of that.\n";

test("a message with an area, an imperative and reasons passes", (t) => {
  t.deepEqual(messageFaults(`daemon: refuse empty names${body}`), []);
  t.deepEqual(messageFaults(`network, daemon/dns: pass on a question once${body}`), []);
  t.deepEqual(messageFaults(`test: wait for the link${body}# a comment of git's\n`), []);
});

test("what git writes itself passes", (t) => {
  t.deepEqual(messageFaults('Revert "daemon: refuse empty names"\n\nThis reverts commit 1.\n'), []);
});

const refused: readonly (readonly [what: string, message: string, said: RegExp])[] = [
  ["no area", `Refuse empty names${body}`, /not "area: imperative"/],
  ["an area in capitals", `Daemon: refuse empty names${body}`, /not "area: imperative"/],
  ["a verb in the past", `daemon: added a refusal${body}`, /"added" is no imperative/],
  ["a long subject", `daemon: refuse ${"x".repeat(60)}${body}`, /has 75 characters; at most 72/],
  ["a full stop", `daemon: refuse empty names.${body}`, /full stop/],
  ["no empty line", "daemon: refuse empty names\nbecause of that", /second line is not empty/],
  ["no body", "daemon: refuse empty names\n", /body is missing/],
  ["a body of comments", "daemon: refuse empty names\n\n# On branch main\n", /body is missing/],
  ["a long line", `daemon: refuse names\n\n${"word ".repeat(21)}\n`, /wrap the body at 100/],
  ["nothing", "", /not "area: imperative"/],
];
for (const [what, message, said] of refused)
  test(`a message with ${what} is refused`, (t) => {
    t.regex(messageFaults(message).join("\n"), said);
  });

test("what an editor shows below the scissors counts for nothing", (t) => {
  const scissors = "# ------------------------ >8 ------------------------\n";
  t.deepEqual(messageFaults(`daemon: refuse${body}${scissors}${"x y".repeat(99)}\n`), []);
});

test("git's hook refuses a message, says why and how to mend it, and lets another one pass", async (t) => {
  const hook = path.resolve(import.meta.dirname, "../../../scripts/hooks/commit-msg");
  const file = path.join(mkdtempSync(path.join(tmpdir(), "podnet-message-")), "COMMIT_EDITMSG");
  t.teardown(() => rmSync(path.dirname(file), { recursive: true }));
  writeFileSync(file, "Changed things\n");
  const refusal = await t.throwsAsync(promisify(execFile)(hook, [file]));
  t.regex(refusal.message, /not "area: imperative"[^]*git commit --edit/);
  writeFileSync(file, `daemon: refuse empty names${body}`);
  await t.notThrowsAsync(promisify(execFile)(hook, [file]));
});
