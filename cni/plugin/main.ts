import { isPodnetError } from "../../core/errors.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { renderError } from "../protocol/error.ts";
import {
  environmentLimit,
  type Outcome,
  renderExchange,
  stdinLimit,
} from "../protocol/exchange.ts";
import { renderPending } from "../protocol/pending.ts";
import { cniError, refusal } from "../protocol/refusal.ts";
import { parseRequest } from "../protocol/request-read.ts";
import { cniVersions, versionAnswer } from "../protocol/version.ts";
import { away, call, type NotAsked } from "./call.ts";
import { writePending } from "./record.ts";
import { parseSettings, type Settings } from "./settings.ts";
import { SysError, sys } from "./sys.ts";

declare const podnetVersion: string;

const about = `podnet-cni ${podnetVersion}: container runtimes run it (CNI ${cniVersions.join(", ")}); podnetd does the work\n`;

/** One call, from beginning to end. */
function run(): void {
  let outcome: Outcome;
  try {
    outcome = answer();
  } catch (thrown) {
    outcome = { exit: 1, stdout: renderError(thrown) };
  }
  try {
    if (outcome.stdout !== "") sys.writeAll(1, encodeUtf8(`${outcome.stdout}\n`));
    sys.exit(outcome.exit);
  } catch {
    // The caller cannot know the outcome.
    sys.exit(1);
  }
}

function answer(): Outcome {
  const variables = sys.environment("CNI_", environmentLimit);
  if (variables === undefined)
    throw refusal(`The variables CNI_* have more than ${environmentLimit} bytes`, {
      cni: cniError.environment,
      field: "CNI_ARGS",
      hint: "Hand the plugin less in CNI_ARGS",
    });
  const env = Object.fromEntries(
    variables.map((text) => {
      const equals = text.indexOf("=");
      return [text.slice(0, equals), text.slice(equals + 1)];
    }),
  );
  const command = env["CNI_COMMAND"];
  if (command === undefined) {
    sys.writeAll(2, encodeUtf8(about));
    return { exit: 0, stdout: "" };
  }
  // Nothing of it is in the configuration, and the one who asks may have nothing on standard input.
  if (command === "VERSION") return { exit: 0, stdout: versionAnswer() };
  const stdin = readInput();
  const settings = parseSettings(stdin);
  const config = sys.base64(stdin);
  const outcome = call(settings, renderExchange(env, config));
  return typeof outcome === "symbol"
    ? withoutPodnetd({ env, stdin, config, settings, why: outcome })
    : outcome;
}

function readInput(): Uint8Array {
  let stdin: Uint8Array | undefined;
  try {
    stdin = sys.readAll(0, stdinLimit);
  } catch (cause) {
    throw refusal("Standard input cannot be read", {
      cni: cniError.io,
      field: "stdin",
      hint: "Hand the plugin its configuration on standard input",
      cause,
    });
  }
  if (stdin !== undefined) return stdin;
  throw refusal(`The configuration has more than ${stdinLimit} bytes`, {
    cni: cniError.io,
    field: "stdin",
    hint: "Hand the plugin its configuration alone",
  });
}

interface Asked {
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: Uint8Array;
  /** Standard input in base64. */
  readonly config: string;
  readonly settings: Settings;
  readonly why: NotAsked;
}

/**
 * Handles a call without podnetd: a DEL is written down, everything else fails with an error that
 * asks for a retry.
 */
function withoutPodnetd({ env, stdin, config, settings, why }: Asked): Outcome {
  const request = parseRequest(env, stdin);
  if (request.command !== "DEL") {
    const cni = request.command === "STATUS" ? cniError.notAvailable : cniError.tryLater;
    if (why === away)
      throw refusal(`podnetd does not answer at ${settings.socket}`, {
        code: "DAEMON_UNREACHABLE",
        cni,
        hint: "Start podnetd, then try again",
      });
    throw refusal("podnetd is busy: it has as many requests under way as it takes", {
      code: "LIMIT_REACHED",
      cni,
      hint: "Try again; if it stays so, raise limits.connections",
    });
  }
  let record: string;
  try {
    record = writePending(
      settings.pendingDirectory,
      request,
      renderPending(env, config, Math.floor(sys.clock()), sys.moment()),
    );
  } catch (cause) {
    if (!(cause instanceof SysError)) throw cause;
    throw refusal(`${why.description} and the DEL cannot be written down: ${cause.message}`, {
      code: "DAEMON_UNREACHABLE",
      cni: cniError.tryLater,
      field: "pendingDirectory",
      hint: `${why === away ? "Start podnetd" : "Try again"}, or make room in ${settings.pendingDirectory}`,
      cause,
    });
  }
  return carryOutNow(settings, renderExchange(env, config), record);
}

/**
 * podnetd may have started meanwhile, and looked for records before this one was there
 * (protocol/pending.ts).
 */
function carryOutNow(settings: Settings, body: string, record: string): Outcome {
  try {
    const outcome = call(settings, body);
    if (typeof outcome === "symbol") return { exit: 0, stdout: "" };
    sys.unlink(record);
    return outcome;
  } catch (thrown) {
    // The record stays and says it all.
    if (isPodnetError(thrown)) return { exit: 0, stdout: "" };
    throw thrown;
  }
}

(globalThis as { podnetRun?: () => void }).podnetRun = run;
