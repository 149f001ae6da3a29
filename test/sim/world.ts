import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { IpPrefix } from "../../core/address.ts";
import { type Config, resolveConfig } from "../../daemon/config/config.ts";
import { parkedPrefix } from "../../daemon/pods/pool/markers.ts";
import type { Variant } from "../../network/model/rules.ts";
import { parseOwner } from "../../network/model/ownership.ts";
import { commentOf } from "../../network/firewall/iptables/rule.ts";
import { parseSave } from "../../network/firewall/iptables/save-format.ts";
import { Containers } from "./containers.ts";
import { FakeKernel } from "./kernel/kernel.ts";
import type { FakeLink } from "./kernel/links.ts";
import { Machines } from "./machines.ts";
import { Random } from "./random.ts";
import type { VirtualTime } from "./time.ts";

const foreignRules = `*filter
:FORWARD ACCEPT [0:0]
:DOCKER - [0:0]
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 -j ACCEPT
-A DOCKER -p tcp -m tcp --dport 80 -j ACCEPT
COMMIT
*nat
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
COMMIT
`;

/**
 * What outlives the daemon: a host with a kernel, machines, directories, and a foreign
 * network on it.
 */
export class World implements Disposable {
  readonly random: Random;
  readonly time: VirtualTime;
  readonly machines: Machines;
  readonly containers: Containers;
  readonly directory: string;
  readonly config: Config;
  readonly variant: Variant;
  kernel: FakeKernel;
  /** How likely a new guest is not good. */
  trouble = 0;
  #boots = 1;

  constructor(seed: number, time: VirtualTime, flags: Readonly<Record<string, string>> = {}) {
    this.random = new Random(seed);
    this.time = time;
    this.variant = this.random.chance(0.8) ? "nft" : "legacy";
    this.kernel = this.#bootKernel();
    this.directory = mkdtempSync(join(tmpdir(), "podnet-sim-"));
    this.containers = new Containers(join(this.directory, "netns"), this.random);
    this.machines = new Machines({
      kernel: () => this.kernel,
      time,
      random: this.random,
      trouble: () => this.trouble,
    });
    for (const name of ["state", "run/pods", "pending", "netns"])
      mkdirSync(join(this.directory, name), { recursive: true });
    for (const name of ["vmlinux", "initrd"]) writeFileSync(join(this.directory, name), "x");
    const firewall = seed % 3 === 0 ? "nftables" : "iptables";
    this.config = configOf(this.directory, firewall, seed % 4 === 1 ? "pool" : "cold", flags);
  }

  get bootId(): string {
    return `boot-${this.#boots}`;
  }

  /** Power off and on: the kernel forgets everything, and others make their network anew. */
  reboot(): void {
    this.#boots++;
    this.machines.reboot(this.bootId);
    // (No file below /run survives it.)
    for (const id of this.markers()) rmSync(join(this.config.podsDir, parkedPrefix + id));
    this.containers.reboot();
    this.kernel = this.#bootKernel();
  }

  /** Ids of machines that have markers instead of rows. */
  markers(): readonly string[] {
    return readdirSync(this.config.podsDir)
      .filter((name) => name.startsWith(parkedPrefix))
      .map((name) => name.slice(parkedPrefix.length));
  }

  #bootKernel(): FakeKernel {
    const kernel = new FakeKernel(() => this.random.mac());
    const docker = kernel.links.addBridge({ name: "docker0", up: true });
    kernel.addAddress(docker.index, "172.17.0.1/16" as IpPrefix);
    kernel.links.addVeth("veth0", this.random.mac(), "veth1", this.random.mac());
    kernel.links.change("veth0", { master: docker.index, up: true });
    kernel.links.openTap("vpn0");
    kernel.links.change("vpn0", { group: 7, alias: "foreign" });
    kernel.iptables[this.variant].restore(foreignRules);
    return kernel;
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

function configOf(
  directory: string,
  firewall: string,
  factory: string,
  more: Readonly<Record<string, string>>,
): Config {
  const flags = new Map(
    Object.entries({
      firewall,
      factory,
      "pool.size": "2",
      // What the real host has of memory is no part of a history.
      "pool.reserve_mib": "0",
      // Nor how many processors it has.
      "limits.starts": "2",
      state_dir: join(directory, "state"),
      run_dir: join(directory, "run"),
      "cni.pending_dir": join(directory, "pending"),
      // Fourteen addresses: histories run out of them now and then.
      "network.cidr": "10.9.0.0/28",
      "network.dns": "10.9.0.53",
      "image.kernel": join(directory, "vmlinux"),
      "image.initrd": join(directory, "initrd"),
      quarantine_s: "20",
      "timeouts.create_s": "90",
      ...more,
    }),
  );
  return resolveConfig({ env: {}, flags, file: undefined, checkout: directory }).config;
}

/** Ours before it could be marked, too: by the names it is made under. */
const isOurs = (
  { alias, name, kind }: Pick<FakeLink, "alias" | "name" | "kind">,
  bridge: string,
): boolean =>
  parseOwner(alias) !== undefined ||
  name === bridge ||
  (kind === "veth" && name.startsWith("pc")) ||
  (kind === "ifb" && name.startsWith("pi")) ||
  (kind === "tun" && name.startsWith("pn")) ||
  (kind === "bridge" && name.startsWith("pn-"));

/** Everything on the host that does not bear podnet's mark, as text. */
export function foreignState({ kernel, config, containers }: World): string {
  const lines: string[] = containers.foreign();
  for (const {
    neighbours,
    addresses,
    settings: _settings,
    peerHome: _home,
    ...link
  } of kernel.links.all.values()) {
    if (isOurs(link, config.network.bridge)) continue;
    lines.push(JSON.stringify({ ...link, addresses, neighbours: [...neighbours] }));
  }
  for (const [variant, tables] of Object.entries(kernel.iptables))
    for (const { name, rules } of parseSave(tables.save()).values())
      for (const { chain, args, text } of rules)
        if (parseOwner(commentOf(args)) === undefined)
          lines.push(`${variant} ${name} ${chain} ${text}`);
  return lines.join("\n");
}
