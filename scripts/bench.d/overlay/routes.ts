import { createInterface } from "node:readline";
import type { Machine } from "../../../test/lab/lab.ts";

/**
 * Watches a machine's routes by `ip monitor`: another program's view of what podnetd does there.
 */
export class RouteWatch implements Disposable {
  readonly #child: ReturnType<Machine["spawn"]>;
  #reported: (destination: string) => void = () => {};

  constructor(machine: Machine) {
    this.#child = machine.spawn(["ip", "monitor", "route"], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    const { stdout } = this.#child;
    if (stdout === null) throw new Error("ip monitor has no output");
    createInterface({ input: stdout }).on("line", (line) => {
      if (!line.startsWith("Deleted")) this.#reported(line.slice(0, line.indexOf(" ")));
    });
  }

  /** Resolves with the time when each of these has come, by `performance.now`. */
  all(destinations: readonly string[], limitMs = 30_000): Promise<number> {
    const missing = new Set(destinations);
    return new Promise((resolve, reject) => {
      const limit = setTimeout(
        () => reject(new Error(`${missing.size} of ${destinations.length} routes did not come`)),
        limitMs,
      );
      this.#reported = (destination) => {
        if (!missing.delete(destination) || missing.size > 0) return;
        clearTimeout(limit);
        resolve(performance.now());
      };
    });
  }

  [Symbol.dispose](): void {
    this.#child.kill();
  }
}
