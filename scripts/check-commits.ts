/**
 * Checks commit messages. With a file, the message in it, as git's hook `commit-msg` gives it;
 * without, those of all commits since the rule was made. Prints what is wrong and exits 1.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { messageFaults } from "./commit-message.ts";

/** Earlier messages had other forms. */
const ruleSince = "2026-11-23T09:00:00Z";

const [file] = process.argv.slice(2);
const messages = file === undefined ? committed() : [["The message", readFileSync(file, "utf8")]];
let wrong = 0;
for (const [name, message] of messages) {
  const faults = messageFaults(message as string);
  if (faults.length === 0) continue;
  wrong++;
  console.error(`${name}: ${String(message).split("\n")[0]}`);
  for (const fault of faults) console.error(`  ${fault}`);
}
if (file === undefined) console.log(`${messages.length} commit messages, ${wrong} with faults`);
else if (wrong > 0)
  console.error(
    '  git keeps it: git commit --edit --file="$(git rev-parse --git-dir)/COMMIT_EDITMSG"',
  );
process.exitCode = wrong === 0 ? 0 : 1;

/**
 * Each commit's short hash and message; none where there is no history, as in an unpacked archive.
 */
function committed(): string[][] {
  try {
    const options = ["--no-merges", `--since=${ruleSince}`, "--format=%h%x00%B%x01"];
    return execFileSync("git", ["log", ...options], { encoding: "utf8", stdio: "pipe" })
      .split("\x01")
      .map((each) => each.trim().split("\0"))
      .filter(([, message]) => message !== undefined);
  } catch {
    return [];
  }
}
