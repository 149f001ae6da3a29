import { existsSync } from "node:fs";
import { join } from "node:path";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Log } from "../../../linux/log.ts";
import type { CniSettings } from "../../config/cni.ts";
import type { Database } from "../../store/database.ts";
import { deleteMeta, getMeta, setMeta } from "../../store/meta.ts";
import { parseJson } from "../../store/rows.ts";
import { type ListedRuntime, networkList, networkListFile, pluginFile } from "./network-list.ts";
import { copyWhole, removeFile, renewWhole, writeWhole } from "./whole-files.ts";

/** Where a plugin and its configuration have been put. */
export interface Installed {
  readonly dir: string;
  readonly binDir: string;
  readonly network?: string;
  readonly runtime?: ListedRuntime;
  /** An installation or its removal was cut short: the next start removes it. */
  readonly half?: true;
}

export interface InstallationParts {
  readonly db: Database;
  readonly settings: CniSettings;
  /** The path of the built plugin. */
  readonly program: string;
  /** How many containers are attached: their runtimes need the list for DEL. */
  readonly containers: () => number;
  readonly log: Log;
}

const key = "cni_installed";

/**
 * The plugin and its list where container runtimes look for them. The list stays until it is
 * uninstalled, also while podnetd is stopped: a runtime without it cannot send DEL, and takes the
 * next list in the directory for new containers.
 */
export class Installation {
  readonly #parts: InstallationParts;
  /** As the row says. Cached, as podnetd may be ending because it can read no more rows. */
  #installed: Installed | undefined;
  #trouble: PodnetError | undefined;

  constructor(parts: InstallationParts) {
    this.#parts = parts;
    this.#installed = installedIn(parts.db);
  }

  /**
   * Installs the plugin, then its list, and returns their paths. An installation in the same
   * directories is replaced file by file, so that a runtime always finds one; an installation in
   * other directories is uninstalled first. After a failure the former installation remains, or
   * nothing. Throws `IMAGE_MISSING`, `SYSCALL_FAILED`, `STATE_UNWRITABLE`, and `WRONG_STATE` as
   * `uninstall` does.
   */
  install(installed: Installed): string[] {
    const program = this.#built();
    const former = this.#installed;
    const replaces =
      former?.half === undefined &&
      former?.dir === installed.dir &&
      former.binDir === installed.binDir;
    if (!replaces) {
      this.uninstall();
      this.#note({ ...installed, half: true });
    }
    const plugin = join(installed.binDir, pluginFile);
    try {
      copyWhole(program, plugin);
      const paths = [plugin, this.#write(installed)];
      this.#note(installed);
      this.#trouble = undefined;
      return paths;
    } catch (thrown) {
      this.#try("restored", () => void (replaces ? this.#write(former) : this.#remove()));
      throw thrown;
    }
  }

  /**
   * Removes plugin and list, and returns the paths of the files that existed. Absent is success.
   * Throws `WRONG_STATE` while containers are attached unless `force` is set; `SYSCALL_FAILED`,
   * `STATE_UNWRITABLE`.
   */
  uninstall({ force = false } = {}): string[] {
    const count = this.#installed === undefined ? 0 : this.#parts.containers();
    if (count > 0 && !force) throw containersAttached(count);
    return this.#remove();
  }

  #remove(): string[] {
    const installed = this.#installed;
    if (installed === undefined) return [];
    if (installed.half === undefined) this.#note({ ...installed, half: true });
    const removed = pathsOf(installed).filter(removeFile);
    this.#note(undefined);
    this.#trouble = undefined;
    return removed;
  }

  /**
   * To be called when podnetd serves. Renews the plugin if this podnetd was built with another one,
   * then writes the list, and removes unfinished files of an earlier podnetd. A failure is reported
   * in `trouble`; the list then stays as it was found, as a runtime without the list uses another
   * network.
   */
  present(): void {
    const installed = this.#installed;
    if (installed === undefined) return;
    if (installed.half === true) {
      this.#try("removed", () => void this.#remove());
      return;
    }
    const plugin = join(installed.binDir, pluginFile);
    const renewed = this.#try("renewed: its plugin cannot be written", () => {
      if (renewWhole(this.#built(), plugin))
        this.#parts.log.info({ path: plugin }, "The CNI plugin was another one, and is renewed");
    });
    if (renewed) this.#try("written", () => void this.#write(installed));
  }

  /** The paths of both files, which `uninstall` would remove; empty where nothing was installed. */
  paths(): string[] {
    return this.#installed === undefined ? [] : pathsOf(this.#installed);
  }

  /** Plugin and list; undefined where they are not installed. */
  get installed(): Installed | undefined {
    return this.#installed;
  }

  /** Why runtimes find another plugin or list than was installed; undefined when they do not. */
  get trouble(): PodnetError | undefined {
    return this.#trouble;
  }

  /**
   * The row is written before the files and removed after them: however podnetd ends, no file is
   * left without a row.
   */
  #note(installed: Installed | undefined): void {
    const { db } = this.#parts;
    if (installed === undefined) deleteMeta(db, key);
    else setMeta(db, key, JSON.stringify(installed));
    this.#installed = installed;
  }

  /** The plugin's path. Throws `IMAGE_MISSING`. */
  #built(): string {
    const { program } = this.#parts;
    if (existsSync(program)) return program;
    throw new PodnetError("IMAGE_MISSING", `There is no plugin at "${program}"`, {
      hint: "Build it: scripts/build-cni",
    });
  }

  #write(installed: Installed): string {
    const path = listOf(installed);
    writeWhole(path, networkList(installed, this.#parts.settings));
    return path;
  }

  #try(what: string, body: () => void): boolean {
    try {
      body();
      return true;
    } catch (err) {
      this.#trouble = toPodnetError(err);
      this.#parts.log.error({ err }, `The configuration for container runtimes cannot be ${what}`);
      return false;
    }
  }
}

function installedIn(db: Database): Installed | undefined {
  const stored = getMeta(db, key);
  if (stored === undefined) return undefined;
  return (parseJson(stored, "where the CNI plugin is") as Installed | null) ?? undefined;
}

const containersAttached = (count: number): PodnetError =>
  new PodnetError(
    "WRONG_STATE",
    `${count} ${count === 1 ? "container is" : "containers are"} attached, and without the list a runtime cannot detach them`,
    {
      hint: "Stop these containers first (podnet cni list); with --force they stay attached until a start of podnetd finds that they have ended",
      details: { containers: count },
    },
  );

/** The paths of both files, the list first. */
const pathsOf = (installed: Installed): string[] => [
  listOf(installed),
  join(installed.binDir, pluginFile),
];

const listOf = ({ dir }: Installed): string => join(dir, networkListFile);
