import { PodnetError, isPodnetError } from "../../core/errors.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import type { GuestRoute, ObservedGuest, ObservedInterface } from "../protocol/configure.ts";
import { parseResolver } from "../protocol/resolver.ts";
import type { GuestPrograms } from "./guest-programs.ts";
import { parseIpAddr, parseIpRoute } from "./iproute-text.ts";

/** STARTPOD brings it up, and something in the guest may take it down. */
const isLoopbackUp = (links: string): boolean => /^\d+: lo: <[^>]*\bUP\b/m.test(links);

/** Files that STARTPOD writes, with the guest's name and its nameservers. */
const podFiles = { hostname: "/tmp/hyper/hostname", resolver: "/tmp/hyper/resolv.conf" } as const;

/**
 * Reads a guest's state through the guest's own programs: hyperstart has no command that reads
 * anything back.
 */
export class HyperstartView {
  readonly #programs: GuestPrograms;

  constructor(programs: GuestPrograms) {
    this.#programs = programs;
  }

  /** Its Ethernet interfaces, and whether `lo` is up. Throws as `text`. */
  async links(
    signal: AbortSignal,
  ): Promise<{ readonly interfaces: ObservedInterface[]; readonly loopbackUp: boolean }> {
    const text = await this.text(["ip", "addr"], signal);
    return { interfaces: parseIpAddr(text), loopbackUp: isLoopbackUp(text) };
  }

  /** Its IPv4 routes. Throws as `text`. */
  async routes(signal: AbortSignal): Promise<GuestRoute[]> {
    return parseIpRoute(await this.text(["ip", "route"], signal));
  }

  /** Whether there is any file that STARTPOD writes. */
  async hasPodFiles(signal: AbortSignal): Promise<boolean> {
    const files = Object.values(podFiles).map((file) => this.textIfAny(["cat", file], signal));
    return (await Promise.all(files)).some((text) => text !== "");
  }

  /** All that is read back of it. Throws as `text`. */
  async observe(
    requestId: string,
    signal: AbortSignal,
  ): Promise<{ readonly observed: ObservedGuest; readonly loopbackUp: boolean }> {
    const read = (...args: string[]): Promise<string> => this.textIfAny(args, signal);
    const { interfaces, loopbackUp } = await this.links(signal);
    const routes = await this.routes(signal);
    const [hostname, resolv, status, seconds] = await Promise.all([
      read("cat", podFiles.hostname),
      read("cat", podFiles.resolver),
      read("cat", "/proc/1/status"),
      read("date", "+%s"),
    ]);
    const observed = {
      requestId,
      hostname: hostname.trim().slice(0, 255),
      dns: parseResolver(resolv),
      interfaces,
      routes,
      clockMs: Number(/^\d{1,12}$/.exec(seconds.trim())?.[0] ?? 0) * 1000,
      agentRssKib: Number(/^VmRSS:\s+(\d{1,12}) kB$/m.exec(status)?.[1] ?? 0),
    };
    return { observed, loopbackUp };
  }

  /** A command's output in the guest. Throws `AGENT_REFUSED` when it fails. */
  async text(args: readonly string[], signal: AbortSignal): Promise<string> {
    const { code, stdout } = await this.#programs.run(args, signal);
    if (code !== 0)
      throw new PodnetError(
        "AGENT_REFUSED",
        `"${args.join(" ")}" exited with ${code} in the guest`,
        {
          hint: "Reading back what a hyperstart did needs ip in its image, or a busybox that has it",
        },
      );
    return decodeUtf8(stdout);
  }

  /** As `text`; empty for a command that fails or is not there. */
  async textIfAny(args: readonly string[], signal: AbortSignal): Promise<string> {
    try {
      return await this.text(args, signal);
    } catch (error) {
      if (isPodnetError(error, "AGENT_REFUSED")) return "";
      throw error;
    }
  }
}
