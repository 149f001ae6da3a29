import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Pod, PodInterface } from "../../api/gen/podnet/v1/pod_pb.ts";
import { unpacked } from "../lab/container-host.ts";
import { type Machine, machineBehind } from "../lab/lab.ts";
import { openRig, type Rig, type Starting } from "./daemon-rig.ts";

const top = path.resolve(import.meta.dirname, "../..");

/**
 * A podnetd that finds lists of plugins in a directory of the test's, and Debian's plugins,
 * podnet's own and the test's.
 */
export interface PodCniRig extends AsyncDisposable {
  readonly rig: Rig;
  /** Lists of plugins. */
  readonly lists: string;
  writeList(file: string, name: string, ...plugins: readonly object[]): void;
  /** A plugin of the test's own, as a vendor ships it: lines of a shell script. */
  vendorPlugin(type: string, script: string): void;
  /** Debian's bridge with host-local. */
  bridge(network: string, subnet: string): object;
  /** The addresses that host-local has given out on a network. */
  held(network: string): string[];
  /** The namespaces that podnetd has made for pods. */
  sandboxes(): string[];
  /** A command in a namespace by its path. */
  inside(netns: string, words: string): Promise<string>;
  /** `ip` on the host, with everybody's mounts. */
  ip(words: string): Promise<string>;
  /** Rules of the host that bear one of these words. */
  rules(words: RegExp): Promise<string[]>;
}

/**
 * A machine of the lab with everybody's mounts: `ip netns exec` gives each command its own, and
 * namespaces are mounts.
 */
const alongside = ({ name, path: netns }: Machine): Machine =>
  machineBehind(name, netns, ["nsenter", `--net=${netns}`]);

/**
 * `open` opens the rig below, given its configuration: one with real machines unless asked
 * otherwise. `starting` is how its podnetd is started: with everybody's mounts.
 */
export async function openPodCniRig(
  open: (config: string, starting: Starting) => Promise<Rig> = openRig,
  starting: Starting = alongside,
): Promise<PodCniRig> {
  const directory = mkdtempSync(path.join(tmpdir(), "pod-cni-"));
  const [lists, vendors, leases] = ["net.d", "vendors", "leases"].map((name) =>
    path.join(directory, name),
  ) as [string, string, string];
  mkdirSync(lists);
  const config = `quarantine_s = 0
drift_s = 1
[cni]
conf_dir = "${lists}"
bin_dirs = ["${path.join(unpacked, "usr/lib/cni")}", "${path.join(top, "build/cni-plugin")}"]
vendor_dir = "${vendors}"
plugin_timeout_s = 6
`;
  const rig = await open(config, starting);
  const namesIn = (at: string): string[] => (existsSync(at) ? readdirSync(at) : []);
  return {
    rig,
    lists,
    writeList: (file, name, ...plugins) =>
      writeFileSync(path.join(lists, file), JSON.stringify({ cniVersion: "1.0.0", name, plugins })),
    vendorPlugin: (type, script) => {
      const at = path.join(vendors, type, "bin");
      mkdirSync(at, { recursive: true });
      writeFileSync(path.join(at, type), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    },
    bridge: (network, subnet) => ({
      type: "bridge",
      bridge: `br-${network}`,
      isGateway: true,
      ipMasq: true,
      mtu: 1450,
      capabilities: { mac: true },
      ipam: { type: "host-local", subnet, dataDir: leases, routes: [{ dst: "0.0.0.0/0" }] },
      dns: { nameservers: ["192.0.2.53"], search: ["cni.example"] },
    }),
    held: (network) => namesIn(path.join(leases, network)).filter((name) => /^[\d.]+$/.test(name)),
    sandboxes: () => namesIn(path.join(rig.daemon.runDir, "netns")),
    inside: (netns, words) => rig.lab.host.run("nsenter", `--net=${netns}`, ...words.split(" ")),
    ip: (words) => alongside(rig.lab.host).run("ip", ...words.split(" ")),
    rules: async (words) =>
      (await rig.lab.host.run("iptables-save", "-t", "nat"))
        .split("\n")
        .filter((line) => words.test(line)),
    async [Symbol.asyncDispose]() {
      await rig[Symbol.asyncDispose]();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** A pod's first interface. */
export function first(pod: Pod | undefined): PodInterface {
  const [found] = pod?.interfaces ?? [];
  if (found === undefined) throw new Error("The pod has no interface");
  return found;
}
