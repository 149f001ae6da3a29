import path from "node:path";
import { Command } from "commander";
import { type Log, LogThreshold, openLog } from "../../linux/log.ts";
import { endAtOnce } from "../../linux/processes/process-end.ts";
import {
  type ServiceState,
  notifyServiceManager,
  watchdogEveryMs,
} from "../../linux/processes/service-manager.ts";
import { isPodnetError, type PodnetError, toPodnetError } from "../../core/errors.ts";
import {
  defaultConfigFile,
  renderSettings,
  type ResolvedConfig,
  resolveConfig,
} from "../config/config.ts";
import { configKeys } from "../config/schema.ts";
import { armFailpoints } from "./failpoints.ts";
import { type Daemon, openDaemon } from "./daemon.ts";
import { salvage } from "./salvage-command.ts";
import { version } from "../../api/version.ts";

/** How long a stop lets creates under way come to an end, milliseconds. */
const drainMs = 15_000;

/** Exit codes; see `docs/reference/errors.md`. */
const exitCodes = { failed: 1, usage: 2, preflight: 6 } as const;

function exitCode(error: PodnetError): number {
  return isPodnetError(error, "PREFLIGHT_FAILED", "QEMU_MISSING", "CONFIG_INVALID")
    ? exitCodes.preflight
    : exitCodes.failed;
}

function fail(thrown: unknown): void {
  const error = toPodnetError(thrown);
  const hint = error.hint === undefined ? "" : `\n  ${error.hint}`;
  process.stderr.write(`podnetd: ${error.message} [${error.code}]${hint}\n`);
  process.exitCode = exitCode(error);
}

/** Commander's name of a flag's value: `--state-dir` is `stateDir`. */
const attribute = (flag: string): string =>
  flag.slice(2).replaceAll(/-([a-z])/g, (_match, letter: string) => letter.toUpperCase());

function resolve(options: Record<string, unknown>): ResolvedConfig {
  const flags = new Map<string, string>();
  for (const { key, flag } of configKeys) {
    const value = options[attribute(flag)];
    if (typeof value === "string") flags.set(key, value);
    else if (value === true) flags.set(key, "true");
  }
  const file = options["config"] as string | undefined;
  return resolveConfig({
    env: process.env,
    flags,
    file,
    checkout: path.resolve(import.meta.dirname, "../.."),
  });
}

function addFlags(command: Command): Command {
  command.option(
    "--config <file>",
    `configuration file (default ${defaultConfigFile} if it is there)`,
  );
  for (const { flag, kind, choices, help, env } of configKeys) {
    const value =
      kind === "boolean"
        ? "[true|false]"
        : kind === "choice"
          ? `<${choices.join("|")}>`
          : kind === "list"
            ? "<a,b,...>"
            : `<${kind}>`;
    command.option(`${flag} ${value}`, `${help} (${env})`);
  }
  return command;
}

/**
 * Notifies systemd, if it asked for that (`Type=notify`). A failure to do so does not end podnetd.
 */
function report(state: ServiceState, log: Log | undefined): void {
  const address = process.env["NOTIFY_SOCKET"];
  if (address === undefined || address === "") return;
  try {
    notifyServiceManager(address, state);
  } catch (thrown) {
    log?.warn({ err: thrown }, "The service manager is not notified");
  }
}

/** How long systemd is asked to wait on, microseconds, and how often, milliseconds. */
const timeout = { usec: 90_000_000, everyMs: 30_000 } as const;

/**
 * Not before programs on the host can know of their subnet, however long a first lease takes; the
 * API answers meanwhile.
 */
async function notifyReady(daemon: Daemon, log: Log): Promise<void> {
  const every = setInterval(
    () => report(`EXTEND_TIMEOUT_USEC=${timeout.usec}`, log),
    timeout.everyMs,
  );
  every.unref();
  await daemon.reported();
  clearInterval(every);
  report("READY=1", log);
  // A podnetd whose event loop hangs is ended and started again. Its pods run on.
  const watchdogMs = watchdogEveryMs(process.env, process.pid);
  if (watchdogMs !== undefined) setInterval(() => report("WATCHDOG=1", log), watchdogMs).unref();
}

/**
 * A variable exported for the command `podnet` does not configure podnetd, whose socket commands of
 * that shell may then miss.
 */
function warnOfClientSocket(log: Log, socket: string): void {
  const meant = process.env["PODNET_SOCKET"] ?? "";
  if (meant === "" || meant === socket) return;
  log.warn(
    { socket, podnet_socket: meant },
    "PODNET_SOCKET is for the command podnet; podnetd takes its own socket from PODNETD_SOCKET, --socket or its configuration",
  );
}

/**
 * The fate of the pods, for the log, when podnetd ends: after `podnet down` there are none left.
 */
const [runOn, removed] = [
  "pods run on",
  "all pods and podnet's part of the host's network were removed",
];

async function serve(options: Record<string, unknown>): Promise<void> {
  let daemon: Daemon | undefined;
  let log: Log | undefined;
  let stopping = false;
  const stop = (why: string, left: string = runOn, code = 0): void => {
    if (stopping) {
      log?.warn({}, "Ending at once");
      process.exit(exitCodes.failed);
    }
    stopping = true;
    log?.info({}, `Ending: ${why}; ${left}`);
    report("STOPPING=1", log);
    void daemon?.close(drainMs).then(
      () => process.exit(code),
      (thrown: unknown) => {
        log?.error({ err: thrown }, "Cannot end cleanly");
        process.exit(exitCodes.failed);
      },
    );
    // Before it is ready nothing is under way that a restart would not repair.
    if (daemon === undefined) process.exit(code);
  };
  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
  process.on("SIGHUP", () => log?.info({}, "Configuration is read at the start only"));
  try {
    armFailpoints(process.env["PODNET_FAILPOINTS"]);
    const { config } = resolve(options);
    const level = new LogThreshold(config.logLevel);
    const main = openLog({ component: "main", level });
    log = main;
    warnOfClientSocket(main, config.socket);
    process.on("uncaughtException", (thrown) => {
      // A defect outside of any guard (core/guard.ts): what it left half done is undone by the next
      // start.
      main.error({ err: thrown }, "Ending because of a defect");
      process.exit(exitCodes.failed);
    });
    const begin = performance.now();
    daemon = await openDaemon(
      config,
      { level, of: (component) => openLog({ component, level }) },
      (error) => {
        // A repeated `podnet down` does not hurry the end; a second signal would.
        if (stopping) return;
        if (error === undefined) return stop("podnet down", removed);
        main.error({ err: error }, "Cannot go on");
        stop(error.message, runOn, exitCodes.failed);
      },
    );
    const duration_ms = Math.round(performance.now() - begin);
    log.info({ duration_ms, version, socket: config.socket }, "Ready");
    await notifyReady(daemon, log);
  } catch (thrown) {
    log?.error({ err: thrown }, "Cannot start");
    // A log that is collected holds JSON only; a person gets it in words too.
    if (log === undefined || process.stderr.isTTY) fail(thrown);
    else process.exitCode = exitCode(toPodnetError(thrown));
  }
}

/**
 * The `podnetd` command: the daemon, a look at its configuration, and what to do with a lost state.
 */
export function podnetdProgram(): Command {
  const program = addFlags(new Command("podnetd"))
    .description(
      "Gives microVM pods their network. Runs in the foreground and logs JSON to standard error.",
    )
    .version(version)
    .option("--foreground", "accepted for unit files; podnetd never goes to the background")
    .helpCommand(false)
    .showSuggestionAfterError()
    .action((options: Record<string, unknown>) => serve(options));
  addFlags(program.command("config"))
    .description("shows the configuration")
    .option("--resolved", "each value with where it comes from")
    .action((_options: unknown, command: Command) => {
      try {
        process.stdout.write(renderSettings(resolve(command.optsWithGlobals())));
      } catch (thrown) {
        fail(thrown);
      }
    });
  addFlags(program.command("state"))
    .argument("[action]", "show, adopt or remove", "show")
    .description(
      "shows the state and the machines that run; adopt puts these back into a state that was lost, remove ends those that it does not know",
    )
    .option("--yes", "remove ends machines")
    .action(async (action: string, _options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      await salvage(resolve(options).config, action, options["yes"] === true).catch(fail);
    });
  return program;
}

/** Runs the `podnetd` command. */
export async function main(argv: readonly string[]): Promise<void> {
  endAtOnce();
  const program = podnetdProgram();
  program.exitOverride((exit) => process.exit(exit.exitCode === 0 ? 0 : exitCodes.usage));
  await program.parseAsync(argv);
}
