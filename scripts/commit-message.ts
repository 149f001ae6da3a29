/**
 * Checks commit messages: `area: imperative` in the first line, the reasons below it
 * (CONTRIBUTING.md).
 */

/** Characters of a subject: what one line of `git log` and of a mail shows. */
const longestSubject = 72;
const longestLine = 100;

/**
 * `area: what it does` or `area, area: …`, where an area is a folder or a subject in lower case.
 */
const subjectForm = /^[a-z0-9][a-z0-9./-]*(?:, [a-z0-9][a-z0-9./-]*)*: (?<verb>\S+)(?: .*)?$/;

/**
 * A verb in another form than the imperative; `is` and `s` alone end many imperatives (`pass`,
 * `miss`).
 */
const notImperative =
  /^(?:adds|added|adding|changes|changed|changing|fixes|fixed|fixing|makes|made|making|moves|moved|moving|removes|removed|removing|renames|renamed|renaming|updates|updated|updating|uses|used|using)$/i;

/** What git itself writes. */
const byGit = /^(?:Merge|Revert|fixup!|squash!|amend!) /;

/**
 * What is wrong with a commit's message, a sentence each; nothing when it is as it should be. Lines
 * that begin with `#`, as an editor shows them, and what follows git's scissors line count for
 * nothing.
 */
export function messageFaults(message: string): string[] {
  const [whole = ""] = message.split(/^# -+ >8 -+$/m);
  const lines = whole.split("\n").filter((line) => !line.startsWith("#"));
  const [subject = "", second = "", ...body] = lines.join("\n").trim().split("\n");
  if (byGit.test(subject)) return [];
  const faults: string[] = [];
  const verb = subjectForm.exec(subject)?.groups?.["verb"];
  if (verb === undefined)
    faults.push('The subject is not "area: imperative", such as "daemon: refuse empty names".');
  else if (notImperative.test(verb))
    faults.push(`"${verb}" is no imperative: write what the commit does as an order.`);
  if (subject.length > longestSubject)
    faults.push(`The subject has ${subject.length} characters; at most ${longestSubject} fit.`);
  if (subject.endsWith(".")) faults.push("The subject ends with a full stop: leave it out.");
  if (second !== "")
    faults.push("The second line is not empty: it parts the subject from the body.");
  if (body.join("").trim() === "")
    faults.push("The body is missing: say below the subject why the change is made.");
  const long = body.find((line) => line.length > longestLine && line.includes(" "));
  if (long !== undefined)
    faults.push(`A line has ${long.length} characters; wrap the body at ${longestLine}: ${long}`);
  return faults;
}
