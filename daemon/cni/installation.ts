import { existsSync } from "node:fs";
import { join } from "node:path";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { CniSettings } from "../config/cni.ts";
import type { Database } from "../store/database.ts";
import { deleteMeta, getMeta, setMeta } from "../store/meta.ts";
import { parseJson } from "../store/rows.ts";
import { networkList, networkListFile, pluginFile } from "./network-list.ts";
import { copyWhole, removeFile, renewWhole, writeWhole } from "./whole-files.ts";

/** Where a plugin and its configuration have been put. */
export interface Installed {
  readonly dir: string;
  readonly binDir: string;
  readonly network?: string;
  /** On its way there or away. Whoever finds it so takes it away: what was asked for was not answered. */
  readonly half?: true;
}

export interface InstallationParts {
  readonly db: Database;
  readonly settings: CniSettings;
  /** The plugin as it was built. */
  readonly program: string;
  readonly log: Log;
}

const key = "cni_installed";

/**
 * The plugin and its configuration where container runtimes look for them. To runtimes the configuration's being there says
 * that podnet is ready: it is there while podnetd serves.
 */
export class Installation {
  readonly #parts: InstallationParts;
  /** As its row says: podnetd may be ending because it can read no rows any more. */
  #installed: Installed | undefined;
  #trouble: PodnetError | undefined;

  constructor(parts: InstallationParts) {
    this.#parts = parts;
    this.#installed = installedIn(parts.db);
  }

  /**
   * Puts both there, the configuration last, and answers their paths; neither when one cannot be. Throws `IMAGE_MISSING`,
   * `SYSCALL_FAILED`, `STATE_UNWRITABLE`.
   */
  install(installed: Installed): string[] {
    const program = this.#built();
    this.uninstall();
    const plugin = join(installed.binDir, pluginFile);
    this.#note({ ...installed, half: true });
    try {
      copyWhole(program, plugin);
      const paths = [plugin, this.#write(installed)];
      this.#note(installed);
      this.#trouble = undefined;
      return paths;
    } catch (thrown) {
      this.#try("taken back", () => void this.uninstall());
      throw thrown;
    }
  }

  /** Takes both away, and answers the paths of what was there. Absent is success. Throws `SYSCALL_FAILED`, `STATE_UNWRITABLE`. */
  uninstall(): string[] {
    const installed = this.#installed;
    if (installed === undefined) return [];
    if (installed.half === undefined) this.#note({ ...installed, half: true });
    const paths = [listOf(installed), join(installed.binDir, pluginFile)];
    const removed = paths.filter(removeFile);
    this.#note(undefined);
    this.#trouble = undefined;
    return removed;
  }

  /**
   * podnetd serves: runtimes may know, of a plugin that is the one built with this podnetd. What a podnetd before left half
   * done goes. What cannot be done is told of; with a plugin that is another one, or none, nothing is announced.
   */
  present(): void {
    const installed = this.#installed;
    if (installed === undefined) return;
    if (installed.half === true) {
      this.#try("taken back", () => void this.uninstall());
      return;
    }
    const plugin = join(installed.binDir, pluginFile);
    const renewed = this.#try("announced: its plugin cannot be renewed", () => {
      if (renewWhole(this.#built(), plugin))
        this.#parts.log.info({ path: plugin }, "The CNI plugin was another one, and is renewed");
    });
    if (renewed) this.#try("written", () => void this.#write(installed));
    else this.withdraw();
  }

  /** Where they are; undefined where nothing was installed. */
  get installed(): Installed | undefined {
    return this.#installed;
  }

  /** Why runtimes have not been given what was installed, or have been given what is not as it should be. */
  get trouble(): PodnetError | undefined {
    return this.#trouble;
  }

  /** podnetd serves no more. */
  withdraw(): void {
    const installed = this.#installed;
    if (installed !== undefined) this.#try("taken back", () => void removeFile(listOf(installed)));
  }

  /** The row comes before the files, and goes after them: no end of podnetd leaves one that nobody knows of. */
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
    writeWhole(path, networkList(installed.network, this.#parts.settings));
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

const listOf = ({ dir }: Installed): string => join(dir, networkListFile);
