import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import { run } from "../../../linux/processes/command.ts";
import type { Log } from "../../../linux/log.ts";
import type { Backend } from "../../../overlay/flannel/backend.ts";
import type { Peer } from "../../../overlay/peers.ts";
import { extensionArgv, type ExtensionValues, extensionVariables } from "./extension-command.ts";

export type ExtensionConfig = Backend & { readonly type: "extension" };

export interface ExtensionOptions {
  readonly config: ExtensionConfig;
  readonly log: Pick<Log, "info" | "warn">;
  /** The time limit of a command, in milliseconds. Default: 30 s. */
  readonly timeoutMs?: number;
}

/** The limit for a command's output, in bytes: a command that prints more is killed. */
const mostOutput = 64 << 10;
/** The limit for the data that every host of the overlay keeps in etcd, in bytes. */
const mostData = 16 << 10;

/** The values that were reported of a peer: when they change, the peer is reported again. */
interface Report {
  readonly values: ExtensionValues;
  readonly data: string;
}

/**
 * flannel's `extension`: the commands of the configuration make packets reach other hosts. They run
 * one after the other, without a shell, with podnetd's rights. The author of the configuration in
 * etcd therefore decides what runs here, so podnetd's own configuration has to allow it
 * (`overlay.extension`).
 *
 * Order: first `before`, whose output becomes this host's data in the lease; then `after`, when
 * this host has the subnet; then `follow` with all peers, at each change of a peer and at each
 * look, which retries failed commands. Like flannel, a new podnetd reports all peers again:
 * commands have to tolerate a second run.
 */
export class Extension {
  readonly #options: ExtensionOptions;
  readonly #reported = new Map<string, Report>();
  /** One at a time, in the order of the calls. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: ExtensionOptions) {
    this.#options = options;
  }

  /**
   * Runs the command `before`. Returns its output, for `BackendAttributes`. Throws as `run` does.
   */
  before(signal: AbortSignal): Promise<string | undefined> {
    return this.#next(async () => {
      const { preStartup } = this.#options.config;
      if (preStartup === "") return undefined;
      const output = await this.#run("PreStartupCommand", preStartup, {}, "", signal);
      if (output.length <= mostData) return output;
      throw new PodnetError("COMMAND_FAILED", "The PreStartupCommand prints too much", {
        field: "Backend.PreStartupCommand",
        hint: `Print at most ${mostData} characters: each host of the overlay keeps them`,
        details: { characters: output.length },
      });
    });
  }

  /** Runs the command after the start. Throws as `run` does. */
  after(own: ExtensionValues, signal: AbortSignal): Promise<void> {
    return this.#next(async () => {
      const { postStartup } = this.#options.config;
      if (postStartup !== "") await this.#run("PostStartupCommand", postStartup, own, "", signal);
    });
  }

  /**
   * Reports peers that were added, removed or changed since the last call. Removed peers come
   * first, because another host may have the subnet now. Returns the failures: they are retried at
   * the next call, and hold up nothing else. Throws `CANCELLED` only.
   */
  follow(peers: Iterable<Peer>, signal: AbortSignal): Promise<readonly PodnetError[]> {
    const wanted = new Map([...peers].map((peer) => [peer.key, reportOf(peer)]));
    return this.#next(async () => {
      const failures: PodnetError[] = [];
      const attempt = async (body: () => Promise<void>): Promise<void> => {
        try {
          await body();
        } catch (thrown) {
          if (isPodnetError(thrown, "CANCELLED")) throw thrown;
          failures.push(toPodnetError(thrown));
        }
      };
      for (const [key, report] of this.#reported) {
        const now = wanted.get(key);
        if (now === undefined || !same(now, report))
          await attempt(() => this.#remove(key, report, signal));
      }
      for (const [key, report] of wanted)
        if (!this.#reported.has(key)) await attempt(() => this.#add(key, report, signal));
      return failures;
    });
  }

  async #add(key: string, report: Report, signal: AbortSignal): Promise<void> {
    const { subnetAdd } = this.#options.config;
    if (subnetAdd !== "")
      await this.#run("SubnetAddCommand", subnetAdd, report.values, report.data, signal);
    this.#reported.set(key, report);
  }

  async #remove(key: string, report: Report, signal: AbortSignal): Promise<void> {
    const { subnetRemove } = this.#options.config;
    if (subnetRemove !== "")
      await this.#run("SubnetRemoveCommand", subnetRemove, report.values, report.data, signal);
    this.#reported.delete(key);
  }

  async #run(
    name: string,
    command: string,
    values: ExtensionValues,
    stdin: string,
    signal: AbortSignal,
  ): Promise<string> {
    const { log, timeoutMs = 30_000 } = this.#options;
    const env = extensionVariables(values);
    const begun = performance.now();
    const fields = { command: name, subnet: values.subnet ?? values.subnet6 };
    try {
      const { stdout, stderr } = await run(extensionArgv(command, env), {
        env,
        stdin,
        signal,
        timeoutMs,
        maxOutput: mostOutput,
      });
      const duration_ms = Math.round(performance.now() - begun);
      log.info({ ...fields, duration_ms, stdout, stderr }, "Extension command succeeded");
      return stdout.trim();
    } catch (thrown) {
      const error = toPodnetError(thrown).with({ field: `Backend.${name}` });
      if (error.code !== "CANCELLED")
        log.warn({ ...fields, err: error }, "Extension command failed");
      throw error;
    }
  }

  #next<T>(body: () => Promise<T>): Promise<T> {
    const next = this.#last.then(body);
    this.#last = next.catch(() => {});
    return next;
  }
}

const reportOf = ({ subnets, publicIp, publicIp6, attributes }: Peer): Report => ({
  values: {
    ...(subnets.v4 === undefined ? {} : { subnet: subnets.v4 }),
    ...(subnets.v6 === undefined ? {} : { subnet6: subnets.v6 }),
    ...(publicIp === undefined ? {} : { publicIp }),
    ...(publicIp6 === undefined ? {} : { publicIp6 }),
  },
  data: (attributes.type === "extension" ? attributes.output : undefined) ?? "",
});

const same = (a: Report, b: Report): boolean =>
  a.data === b.data &&
  JSON.stringify(extensionVariables(a.values)) === JSON.stringify(extensionVariables(b.values));
