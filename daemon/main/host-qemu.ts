import type { PodnetError } from "../../core/errors.ts";
import { toPodnetError } from "../../core/errors.ts";
import {
  type Confinement,
  openConfinement,
  tryConfinement,
} from "../../hypervisor/process/confinement.ts";
import type { Config } from "../config/config.ts";
import { isExecutable, qemuPath, qemuVersion } from "./preflight.ts";

/**
 * The QEMU of this host. A node that runs containers only may be without one: podnetd starts, and
 * looks again whenever a machine is to start.
 */
export class HostQemu {
  readonly #config: Config;
  /** How machines are confined; undefined where the configuration says that they are not. */
  readonly confinement: Confinement | undefined;
  #tried: boolean;
  #trial: Promise<void> | undefined;
  #version: { readonly path: string; readonly text: Promise<string> } | undefined;

  private constructor(config: Config, confinement: Confinement | undefined, tried: boolean) {
    this.#config = config;
    this.confinement = confinement;
    this.#tried = tried;
  }

  /**
   * Finds out how machines are confined, and tries it where QEMU is installed. Throws
   * `PREFLIGHT_FAILED`.
   */
  static async open(config: Config): Promise<HostQemu> {
    const qemu = pathIn(config);
    const confinement = config.qemu.confine
      ? await openConfinement({ ...config.qemu, qemu, runDir: config.runDir })
      : undefined;
    return new HostQemu(config, confinement, confinement === undefined || qemu !== undefined);
  }

  /** Why no machine can start on this host, now; undefined where QEMU is installed. */
  missing(): PodnetError | undefined {
    try {
      qemuPath(this.#config);
      return undefined;
    } catch (thrown) {
      return toPodnetError(thrown);
    }
  }

  /** Path of its program; undefined where there is none. */
  get path(): string | undefined {
    return pathIn(this.#config);
  }

  /** QEMU's own version, such as `7.2.22`; empty where QEMU is not installed. */
  async version(): Promise<string> {
    const path = this.path;
    if (path === undefined) return "";
    if (this.#version?.path !== path) this.#version = { path, text: qemuVersion(path) };
    return await this.#version.text;
  }

  /**
   * Runs before a machine starts: no machine is confined in a way that was not tried. Where QEMU
   * was installed after podnetd's start, the jail is tried now. Throws `QEMU_MISSING`,
   * `PREFLIGHT_FAILED`.
   */
  async prepare(qemu: string): Promise<void> {
    if (this.#tried || this.confinement === undefined) return;
    if (!isExecutable(qemu)) qemuPath(this.#config);
    this.#trial ??= tryConfinement(this.confinement, { qemu, runDir: this.#config.runDir });
    try {
      await this.#trial;
      this.#tried = true;
    } finally {
      this.#trial = undefined;
    }
  }
}

function pathIn(config: Config): string | undefined {
  try {
    return qemuPath(config);
  } catch {
    return undefined;
  }
}
