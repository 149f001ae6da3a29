import { existsSync } from "node:fs";
import { join } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { CniSettings } from "../config/cni.ts";
import type { Database } from "../store/database.ts";
import { getMeta, setMeta } from "../store/meta.ts";
import { parseJson } from "../store/rows.ts";
import { networkList, networkListFile, pluginFile } from "./network-list.ts";
import { copyWhole, removeFile, writeWhole } from "./whole-files.ts";

/** Where a plugin and its configuration have been put. */
export interface Installed {
  readonly dir: string;
  readonly binDir: string;
  readonly network?: string;
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

  constructor(parts: InstallationParts) {
    this.#parts = parts;
    this.#installed = installedIn(parts.db);
  }

  /** Puts both there, the configuration last, and answers their paths. Throws `IMAGE_MISSING`, `SYSCALL_FAILED`. */
  install(installed: Installed): string[] {
    const { db, program } = this.#parts;
    if (!existsSync(program))
      throw new PodnetError("IMAGE_MISSING", `There is no plugin at "${program}"`, {
        hint: "Build it: scripts/build-cni",
      });
    this.uninstall();
    const plugin = join(installed.binDir, pluginFile);
    copyWhole(program, plugin);
    setMeta(db, key, JSON.stringify(installed));
    this.#installed = installed;
    return [plugin, this.#write(installed)];
  }

  /** Takes both away, and answers the paths of what was there. Absent is success. Throws `SYSCALL_FAILED`. */
  uninstall(): string[] {
    const installed = this.#installed;
    if (installed === undefined) return [];
    const paths = [listOf(installed), join(installed.binDir, pluginFile)];
    const removed = paths.filter(removeFile);
    setMeta(this.#parts.db, key, "null");
    this.#installed = undefined;
    return removed;
  }

  /** podnetd serves: runtimes may know. What cannot be written is told of. */
  present(): void {
    const installed = this.#installed;
    if (installed !== undefined) this.#try("written", () => void this.#write(installed));
  }

  /** podnetd serves no more. */
  withdraw(): void {
    const installed = this.#installed;
    if (installed !== undefined) this.#try("taken back", () => void removeFile(listOf(installed)));
  }

  #write(installed: Installed): string {
    const path = listOf(installed);
    writeWhole(path, networkList(installed.network, this.#parts.settings));
    return path;
  }

  #try(what: string, body: () => void): void {
    try {
      body();
    } catch (err) {
      this.#parts.log.error({ err }, `The configuration for container runtimes cannot be ${what}`);
    }
  }
}

function installedIn(db: Database): Installed | undefined {
  const stored = getMeta(db, key);
  if (stored === undefined) return undefined;
  return (parseJson(stored, "where the CNI plugin is") as Installed | null) ?? undefined;
}

const listOf = ({ dir }: Installed): string => join(dir, networkListFile);
