import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { unpacked } from "../../../test/lab/container-host.ts";
import type { Machine } from "../../../test/lab/lab.ts";
import { startPodnetd } from "../../../test/lab/podnetd.ts";
import { standInConfig } from "../../../test/lab/standin.ts";
import type { Stack } from "./host.ts";

/** podnet's plugin. */
export const podnetCni = path.resolve(import.meta.dirname, "../../../build/cni-plugin/podnet-cni");

const cniVersion = "1.0.0";
const portMappings = (hostPort: number | undefined) =>
  hostPort === undefined
    ? {}
    : { runtimeConfig: { portMappings: [{ hostPort, containerPort: 80, protocol: "tcp" }] } };

interface Result {
  readonly interfaces: readonly { readonly name: string; readonly sandbox?: string }[];
}

/** The host's end, which stands behind the bridge. */
const linkOf = (result: string): string => (JSON.parse(result) as Result).interfaces[1]?.name ?? "";

/** Debian's bridge, host-local and, for a port, portmap; their records in a directory. */
export function referenceStack(directory: string): Stack {
  const pluginPath = path.join(unpacked, "usr/lib/cni");
  const name = "reference";
  const bridge = {
    cniVersion,
    name,
    type: "bridge",
    bridge: "cni0",
    isGateway: true,
    ipMasq: true,
    ipam: {
      type: "host-local",
      subnet: "10.68.0.0/20",
      routes: [{ dst: "0.0.0.0/0" }],
      dataDir: path.join(directory, "networks"),
    },
  };
  return {
    pluginPath,
    plugins: (hostPort) => [
      { program: path.join(pluginPath, "bridge"), config: bridge },
      ...(hostPort === undefined
        ? []
        : [
            {
              program: path.join(pluginPath, "portmap"),
              config: {
                cniVersion,
                name,
                type: "portmap",
                snat: true,
                ...portMappings(hostPort),
              },
            },
          ]),
    ],
    served: () => 0,
    linkOf,
  };
}

/** The plugin that does the least (floor.c), with its bridge; it publishes no ports. */
export async function floorStack(program: string, machine: Machine): Promise<Stack> {
  await machine.run("ip", "link", "add", "floor0", "type", "bridge");
  await machine.run("ip", "address", "add", "10.88.0.1/20", "dev", "floor0");
  await machine.run("ip", "link", "set", "floor0", "up");
  return {
    pluginPath: path.dirname(program),
    plugins: () => [{ program, config: { cniVersion } }],
    served: () => 0,
    linkOf,
  };
}

/** podnetd with its plugin. */
export async function podnetStack(
  directory: string,
  firewall: "nftables" | "iptables",
  machine: Machine,
  owned: AsyncDisposableStack,
  env: Readonly<Record<string, string>> = {},
): Promise<Stack> {
  mkdirSync(directory, { recursive: true });
  const config = `drift_s = 3600
firewall = "${firewall}"
network.cidr = "10.88.0.0/20"
${await standInConfig(path.join(directory, "image"))}`;
  const daemon = await startPodnetd({ machine, directory, config, env, readyMs: 120_000 });
  owned.use(daemon);
  const plugin = {
    cniVersion,
    name: "podnet",
    type: "podnet-cni",
    socket: path.join(daemon.runDir, "cni.sock"),
    pendingDirectory: path.join(directory, "pending"),
  };
  return {
    pluginPath: path.dirname(podnetCni),
    plugins: (hostPort) => [
      { program: podnetCni, config: { ...plugin, ...portMappings(hostPort) } },
    ],
    served: () => processorMs(daemon.process.pid as number),
    linkOf,
  };
}

/** Processor time of a process's threads and of the children it has waited for, milliseconds. */
function processorMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`).map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, "latin1").split(" ")[0]),
  );
  // The kernel reports children only in hundredths of a second: proc(5), cutime and cstime.
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const [user, system] = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(13, 15);
  return threads.reduce((sum, ns) => sum + ns, 0) / 1e6 + (Number(user) + Number(system)) * 10;
}
