import type { ChildProcess } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import path from "node:path";
import type { EtcdOptions } from "../../etcd/client.ts";
import type { FlannelOptions } from "../peers/flannel.ts";
import type { Machine } from "./lab.ts";
import { type Container, startContainer } from "./overlay-container.ts";
import { type Podnetd, startPodnetd } from "./podnetd.ts";
import { batch, underlayAddress } from "./underlay.ts";
import { until } from "./until.ts";

const flannelProgram = path.resolve(import.meta.dirname, "../peers/flannel.ts");

/** What a host of the lab runs. */
export type Kind = "podnet" | "flannel";

export interface HostSettings {
  readonly prefix: string;
  readonly client: EtcdOptions;
  /** Of etcd's certificates. */
  readonly tls: FlannelOptions["etcd"]["tls"];
  readonly ttlSeconds: number;
  /** TOML put below podnetd's own, tables first closed by it. */
  readonly podnetConfig: string;
  /** Lines of podnetd's table `[overlay]` about its subnet manager; etcd's unless given. */
  readonly manager?: (n: number) => string;
  /** Whether flanneld runs with -ip-masq. */
  readonly masquerade?: boolean;
}

/** What a subnet.env says. */
export interface SubnetEnvironment {
  readonly network: string;
  /** `10.77.3.1/24` */
  readonly subnet: string;
  readonly subnet6: string | undefined;
  readonly mtu: number;
}

/**
 * A host of the lab, with the daemon that makes it part of the overlay. Other hosts must not notice
 * which of the two it is.
 */
export class OverlayLabHost implements AsyncDisposable {
  readonly n: number;
  /** May be set between the end of one daemon and the start of the other. */
  kind: Kind;
  readonly machine: Machine;
  readonly address: string;
  readonly directory: string;
  readonly subnetFile: string;
  readonly #settings: HostSettings;
  readonly #containers: Container[] = [];
  #podnetd: Podnetd | undefined;
  #flannel: ChildProcess | undefined;

  constructor(n: number, kind: Kind, machine: Machine, directory: string, settings: HostSettings) {
    this.n = n;
    this.kind = kind;
    this.machine = machine;
    this.address = underlayAddress(n);
    this.directory = directory;
    this.subnetFile = path.join(directory, "subnet.env");
    this.#settings = settings;
    mkdirSync(directory, { recursive: true });
  }

  get running(): boolean {
    const child = this.kind === "podnet" ? this.#podnetd?.process : this.#flannel;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Of a host that runs it. */
  get podnetd(): Podnetd {
    if (this.#podnetd === undefined) throw new Error(`Host ${this.n} has no podnetd`);
    return this.#podnetd;
  }

  get bridge(): string {
    return this.kind === "podnet" ? "hyper0" : "cni0";
  }

  log(): string {
    const file = path.join(this.directory, "flannel.log");
    if (this.kind === "podnet") return this.#podnetd?.log() ?? "";
    return existsSync(file) ? readFileSync(file, "utf8") : "";
  }

  /** Returns when its daemon runs; `joined` resolves when it has its subnet. */
  async start(): Promise<void> {
    if (this.running) throw new Error(`Host ${this.n} runs already`);
    if (this.kind === "flannel") this.#startFlannel();
    else
      this.#podnetd = await startPodnetd({
        machine: this.machine,
        directory: this.directory,
        config: this.#podnetConfig(),
        // Several start at a time.
        readyMs: 60_000,
      });
  }

  /** Waits for its subnet.env. */
  async joined(): Promise<SubnetEnvironment> {
    return await until(
      `host ${this.n} (${this.kind}) to have a subnet`,
      () => {
        // Another was quicker to take the subnet: whoever supervises flanneld starts it again.
        if (this.kind === "flannel" && !this.running && /already exists/.test(this.log()))
          this.#startFlannel();
        return this.environment();
      },
      30_000,
      () => this.log(),
    );
  }

  /** What its subnet.env says now. */
  environment(): SubnetEnvironment | undefined {
    if (!existsSync(this.subnetFile)) return undefined;
    const text = readFileSync(this.subnetFile, "utf8");
    const line = (name: string): string | undefined =>
      new RegExp(`^FLANNEL_${name}=(.*)$`, "m").exec(text)?.[1];
    return {
      network: line("NETWORK") ?? "",
      subnet: line("SUBNET") ?? "",
      subnet6: line("IPV6_SUBNET"),
      mtu: Number(line("MTU")),
    };
  }

  /** The end of its daemon. */
  async end(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    if (!this.running) return;
    if (this.kind === "podnet") {
      const daemon = this.podnetd;
      // One that does not end is reported with its log, which a test's own limit would not show.
      const limit = setTimeout(() => {
        console.error(`Host ${this.n} does not end at ${signal}:\n${daemon.log().slice(-4000)}`);
      }, 60_000);
      await (signal === "SIGTERM" ? daemon.stop() : daemon.kill());
      clearTimeout(limit);
      return;
    }
    const child = this.#flannel as ChildProcess;
    const ended = new Promise<void>((resolve) => {
      child.once("exit", () => resolve());
    });
    child.kill(signal);
    await ended;
  }

  /**
   * A namespace on its bridge, once it has a subnet; flanneld's host is given the bridge, as by
   * Docker.
   */
  async container(): Promise<Container> {
    const { subnet, subnet6, mtu } = await this.joined();
    if (this.kind === "flannel") await this.#bridge(subnet, subnet6);
    const number = this.#containers.length;
    const place = {
      host: this.machine,
      bridge: this.bridge,
      gateway: subnet,
      gateway6: subnet6,
      mtu,
    };
    const carried = async (): Promise<boolean> => {
      const shown = this.machine.run("ip", "-o", "addr", "show", "dev", this.bridge);
      const text = await shown.catch(() => "");
      return [subnet, subnet6 ?? subnet].every((address) => text.includes(` ${address} `));
    };
    await until(
      `${this.bridge} on host ${this.n} to have ${subnet} ${subnet6 ?? ""}`,
      carried,
      30_000,
      () => this.log(),
    );
    const made = await startContainer(place, number);
    this.#containers.push(made);
    return made;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const container of this.#containers) await container[Symbol.asyncDispose]();
    if (this.#podnetd !== undefined) await this.#podnetd[Symbol.asyncDispose]();
    await this.end("SIGKILL");
  }

  async #bridge(subnet: string, subnet6: string | undefined): Promise<void> {
    if ((await this.machine.run("ip", "-o", "link", "show")).includes("cni0")) return;
    await batch(this.machine, [
      "link add cni0 type bridge forward_delay 0",
      "link set cni0 up",
      `addr add ${subnet} dev cni0`,
      ...(subnet6 === undefined ? [] : [`addr add ${subnet6} dev cni0`]),
    ]);
    const forwards = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];
    await this.machine.run("sysctl", "-qw", ...forwards);
  }

  #startFlannel(): void {
    const { prefix, client, tls, ttlSeconds, masquerade = false } = this.#settings;
    const options: FlannelOptions = {
      etcd: { endpoints: client.endpoints, ...(tls === undefined ? {} : { tls }) },
      prefix,
      interface: "eth0",
      subnetFile: this.subnetFile,
      ttlSeconds,
      marginSeconds: Math.min(3600, ttlSeconds / 2),
      masquerade,
    };
    // What is reported of its former life is not of this one.
    const log = openSync(path.join(this.directory, "flannel.log"), "w");
    const words = [process.execPath, flannelProgram, JSON.stringify(options)] as const;
    this.#flannel = this.machine.spawn(words, { stdio: ["ignore", log, log] });
    closeSync(log);
  }

  #podnetConfig(): string {
    const { podnetConfig, manager = () => this.#etcdLines() } = this.#settings;
    return `${podnetConfig}
[overlay]
${manager(this.n)}
interface = ["eth0"]
subnet_file = ${JSON.stringify(this.subnetFile)}
`;
  }

  #etcdLines(): string {
    const { prefix, client, tls, ttlSeconds } = this.#settings;
    const text = (value: unknown): string => JSON.stringify(value);
    return `etcd.endpoints = ${text(client.endpoints)}
etcd.prefix = ${text(prefix)}
${tls === undefined ? "" : `etcd.ca = ${text(tls.ca)}\netcd.cert = ${text(tls.cert)}\netcd.key = ${text(tls.key)}`}
lease_ttl_s = ${ttlSeconds}`;
  }
}
