import { defaultSocket } from "../../../cni/protocol/exchange.ts";
import { defaultPendingDirectory } from "../../../cni/protocol/pending.ts";
import type { CniSettings } from "../../config/cni.ts";

/** The file's name among others in the directory: runtimes take the first by name. */
export const networkListFile = "10-podnet.conflist";
/** The plugin's, as the list names it. */
export const pluginFile = "podnet-cni";

/** The capabilities that runtimes pass to podnet-cni, where they have values for them. */
const capabilities = {
  portMappings: true,
  bandwidth: true,
  ips: true,
  mac: true,
  dns: true,
  ipRanges: true,
  "io.kubernetes.cri.pod-annotations": true,
} as const;

/** Runtimes that need a list of their own. */
export const listedRuntimes = ["podman"] as const;
export type ListedRuntime = (typeof listedRuntimes)[number];

export interface ListOptions {
  readonly network?: string;
  /** Absent: a list for any other runtime. */
  readonly runtime?: ListedRuntime;
}

/**
 * The list of plugins by which runtimes use podnet, as text. `network` is podnet's; none: the
 * node's default. `cniVersion` is 1.0.0, the newest that containerd 1.6 and podman 4.3 know.
 * `cniVersions` (CNI 1.1.0, section "Configuration format") adds 1.1.0: runtimes that know it use
 * it, and then call STATUS and GC. Pure.
 */
export function networkList(
  { network, runtime }: ListOptions,
  { socket, pendingDir }: Pick<CniSettings, "socket" | "pendingDir">,
): string {
  const plugin = {
    type: pluginFile,
    ...(network === undefined ? {} : { network }),
    ...(socket === defaultSocket ? {} : { socket }),
    ...(pendingDir === defaultPendingDirectory ? {} : { pendingDirectory: pendingDir }),
    // podman listens at published ports itself, before ADD, and hands on names of the container.
    ...(runtime === "podman" ? { portsHeldByRuntime: true } : {}),
    capabilities: runtime === "podman" ? { ...capabilities, aliases: true } : capabilities,
  };
  const list = {
    cniVersion: "1.0.0",
    cniVersions: ["1.0.0", "1.1.0"],
    name: "podnet",
    plugins: [plugin],
  };
  return `${JSON.stringify(list, null, 2)}\n`;
}
