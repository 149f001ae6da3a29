import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { run } from "../../linux/processes/command.ts";

/**
 * systemd-networkd as a stock cloud image has it, for one namespace: DHCPv4, router advertisements,
 * DHCPv6. It believes to be in a container without udev, as /sys cannot be written, and has a /run
 * of its own.
 */
export class Networkd implements AsyncDisposable {
  readonly #namespace: string;
  readonly #process: ChildProcess;
  said = "";

  constructor(namespace: string, more = "") {
    this.#namespace = namespace;
    const config = `[Match]\\nName=eth0\\n[Network]\\nDHCP=yes\\nIPv6AcceptRA=yes\\n${more}[DHCPv4]\\nUseMTU=yes\\n`;
    const script = [
      "mount -o remount,ro /sys",
      "mount -t tmpfs tmpfs /run",
      "mkdir -p /run/systemd/network /run/systemd/netif/leases /run/systemd/netif/links /run/systemd/netif/lldp",
      "chown -R systemd-network /run/systemd/netif",
      `printf '${config}' >/run/systemd/network/10-all.network`,
      "exec /lib/systemd/systemd-networkd",
    ].join(" && ");
    this.#process = spawn("ip", ["netns", "exec", namespace, "unshare", "-m", "sh", "-c", script], {
      env: { ...process.env, SYSTEMD_LOG_LEVEL: "debug", SYSTEMD_LOG_TARGET: "console" },
    });
    const take = (chunk: Buffer): void => {
      this.said += chunk.toString();
    };
    this.#process.stdout?.on("data", take);
    this.#process.stderr?.on("data", take);
  }

  /**
   * What `ip` shows in the namespace, once it has all of these; the last try is shown when it never
   * has.
   */
  async until(wanted: readonly RegExp[]): Promise<string> {
    const ip = async (...args: readonly string[]): Promise<string> =>
      (await run(["ip", "-n", this.#namespace, ...args])).stdout;
    for (let attempt = 0; ; attempt++) {
      const shown = [
        await ip("address", "show", "dev", "eth0"),
        await ip("route"),
        await ip("-6", "route"),
      ].join("\n");
      const missing = wanted.filter((each) => !each.test(shown));
      if (missing.length === 0) return shown;
      if (attempt === 100)
        throw new Error(`${missing.join(" ")} not in\n${shown}\n${this.said.slice(-6000)}`);
      await delay(100);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    this.#process.kill("SIGTERM");
    await once(this.#process, "exit");
  }
}
