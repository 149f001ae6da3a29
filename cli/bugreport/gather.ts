import type { JsonValue } from "@bufbuild/protobuf";
import type { Podnet } from "../../api/client.ts";
import { NetworkSchema } from "../../api/gen/podnet/v1/network_service_pb.ts";
import { DiffResponseSchema, InfoResponseSchema } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponseSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { version } from "../../api/version.ts";
import { toPodnetError } from "../../core/errors.ts";
import { daemonChecks } from "../doctor/daemon-checks.ts";
import { examine } from "../doctor/doctor.ts";
import type { Finding } from "../doctor/finding.ts";
import type { Host } from "../doctor/host.ts";
import { type Answers, recording } from "../doctor/recorded-host.ts";
import { toPlain } from "../output.ts";
import { redactJson, redactLines, redactText } from "./redact.ts";
import { about } from "./about.ts";

/** How many of the last events and lines of the journal a report has. */
const [lastEvents, lastLines] = [500n, 2000];
/** For all that podnetd is asked, milliseconds each: a report is made of a bad day. */
const answerMs = 20_000;
/** For the events, which arrive at once. */
const eventsMs = 5000;

type Files = Map<string, string>;

/** A report's files by name. What cannot be had has the reason in its place. Changes nothing. */
export async function gather(host: Host, podnet: Podnet, signal: AbortSignal): Promise<Files> {
  const files: Files = new Map([["README.txt", about]]);
  const json = async (name: string, get: () => Promise<JsonValue>): Promise<void> => {
    files.set(name, `${JSON.stringify(redactJson(await orError(get, signal)), undefined, 2)}\n`);
  };
  const text = async (name: string, argv: readonly string[], only = (said: string) => said) => {
    const ran = await host.run(argv);
    const said = ran === null ? `${argv[0]} is not installed\n` : only(ran.stdout) + ran.stderr;
    files.set(name, redactLines(said));
  };
  const { host: recorded, answers } = recording(host);
  const findings: Finding[] = await examine(recorded);
  findings.push(...(await daemonChecks(podnet, signal)));
  await json("doctor.json", () =>
    Promise.resolve(findings.map(({ fix, ...each }) => ({ ...each, fix: [...(fix ?? [])] }))),
  );
  await json("host.json", () => Promise.resolve(leftOf(answers)));
  files.set("config.txt", redactText(resolvedConfig(answers)));
  await json("versions.json", async () => ({
    podnet: version,
    node: process.version,
    podnetd: toPlain(
      InfoResponseSchema,
      await podnet.node.info({}, { signal, timeoutMs: answerMs }),
    ),
  }));
  await json("pods.json", async () => {
    const { pods } = await podnet.pods.list({}, { signal, timeoutMs: answerMs });
    return pods.map((pod) => toPlain(PodSchema, pod));
  });
  await json("networks.json", async () => {
    const { networks } = await podnet.networks.list({}, { signal, timeoutMs: answerMs });
    return networks.map((network) => toPlain(NetworkSchema, network));
  });
  await json("plans-and-drift.json", async () =>
    toPlain(DiffResponseSchema, await podnet.node.diff({}, { signal, timeoutMs: answerMs })),
  );
  await json("events.json", () => eventsOf(podnet, signal));
  await text("journal.txt", journal);
  await text("rules.txt", ["nft", "list", "ruleset"], ownRules);
  await text("links.txt", ["ip", "-details", "link", "show", "group", "73"]);
  await text("routes.txt", ["ip", "route", "show", "table", "all", "proto", "73"]);
  return files;
}

const journal = [
  "journalctl",
  "--unit=podnetd.service",
  `--lines=${lastLines}`,
  "--output=cat",
  "--no-pager",
];

async function orError(get: () => Promise<JsonValue>, signal: AbortSignal): Promise<JsonValue> {
  try {
    return await get();
  } catch (thrown) {
    signal.throwIfAborted();
    const { code, message } = toPodnetError(thrown);
    return { missing: `${code}: ${message}` };
  }
}

/** Answers that judge the host again: of foreign rules only what hooks and drops. */
function leftOf(answers: Answers): Answers {
  return Object.fromEntries(
    Object.entries(answers).map(([question, answer]) => {
      if (!question.startsWith("run ") || answer === null) return [question, answer];
      const { stdout, ...rest } = answer as { stdout?: string };
      const isRules = /ruleset|iptables-legacy-save/.test(question);
      if (stdout === undefined) return [question, answer];
      const kept = isRules ? stdout.split("\n").filter((line) => outline.test(line)) : [stdout];
      return [question, { ...rest, stdout: kept.join("\n") }];
    }),
  );
}

const outline =
  /^\s*(?:table \S+ \S+ \{|chain \S+ \{|\}|type \w+ hook .*|(?:counter \S+ \d+ \S+ \d+ )?(?:drop|reject)\b.*)$|^:FORWARD /;

const resolvedConfig = (answers: Answers): string =>
  Object.entries(answers)
    .flatMap(([question, answer]) =>
      question.includes('"config","--resolved"') && answer !== null
        ? [(answer as { stdout: string }).stdout]
        : [],
    )
    .join("\n") || "podnetd is not installed\n";

/** Tables of podnet, and lines with its mark in tables of others. */
export function ownRules(ruleset: string): string {
  let isOwn = false;
  return ruleset
    .split("\n")
    .filter((line) => {
      if (line.startsWith("table ")) isOwn = /^table \S+ \S*podnet/.test(line);
      return isOwn || /^table |podnet|HYPER/.test(line);
    })
    .map((line) => `${line}\n`)
    .join("");
}

/** The last events up to now. */
async function eventsOf(podnet: Podnet, signal: AbortSignal): Promise<JsonValue> {
  const { cursor } = await podnet.pods.list({}, { signal, timeoutMs: answerMs });
  if (cursor === 0n) return [];
  const after = cursor > lastEvents ? cursor - lastEvents : 0n;
  const events: JsonValue[] = [];
  try {
    const options = { signal, timeoutMs: eventsMs };
    for await (const event of podnet.pods.watch({ after }, options)) {
      const { pod, ...rest } = toPlain(WatchPodsResponseSchema, event);
      events.push({ ...rest, pod: event.pod?.id ?? pod ?? null });
      if (event.cursor >= cursor) break;
    }
  } catch (thrown) {
    signal.throwIfAborted();
    events.push({ missing: toPodnetError(thrown).message });
  }
  return events;
}
