import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { type Cidr, type Ip, type IpPrefix, type Mac, parseIp } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { writeSysctl } from "../../linux/sysctl.ts";
import type {
  NetworkFragment,
  PodFragment,
  PublishedDesired,
} from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork, type HostNetworkOptions } from "../../network/bridge/host-network.ts";
import { type HostKernel, openHostKernel } from "../../network/kernel/kernel.ts";
import { compile, type Decisions } from "../../policy/compile.ts";
import { readPolicy } from "../../policy/read-policy.ts";
import { podMark } from "../../network/model/ownership.ts";
import type { DriverUnderTest } from "./firewall-drivers.ts";
import { ownNetns } from "./netns.ts";
import { networkFragment, podIdOf } from "./network.ts";
import type { Order } from "./traffic-end.ts";

const { signal } = new AbortController();

/** Addresses of the host: towards the outside, and as the gateway of `hyper0`. */
export const hostAddresses = {
  4: { outer: "192.0.2.1", second: "192.0.2.2", gateway: "192.168.123.1" },
  6: { outer: "2001:db8:2::1", second: "2001:db8:2::2", gateway: "fd00:123::1" },
} as const;
/** A pod's decisions by one policy alone, given as in a file, as `podnet policy apply` has it. */
export const decisions = (fields: object): Decisions =>
  compile([readPolicy({ name: "p", ...fields })], {
    pods: [],
    host: [parseIp(hostAddresses[4].gateway), parseIp(hostAddresses[6].gateway)],
    hostServices: [],
    cloudMetadata: false,
  });
/** A machine outside, for which the host is the router. */
export const outsideAddress = { 4: "192.0.2.20", 6: "2001:db8:2::20" } as const;
export const podAddress = (n: number, family: 4 | 6): string =>
  family === 4 ? `192.168.123.${n}` : `fd00:123::${n}`;

/** The MAC of pod number `n`, below 256. */
export const podMac = (n: number): Mac =>
  `52:54:00:00:00:${n.toString(16).padStart(2, "0")}` as Mac;

/** The link-local address that Linux makes of it. */
export const podLinkLocal = (n: number): string => `fe80::5054:ff:fe00:${n.toString(16)}`;

/** The default network with both families. */
export const dualNetwork = (more: Partial<NetworkFragment> = {}): NetworkFragment =>
  networkFragment({
    gateways: ["192.168.123.1/24" as IpPrefix, "fd00:123::1/64" as IpPrefix],
    masquerade: ["192.168.123.0/24" as Cidr, "fd00:123::/64" as Cidr],
    ...more,
  });

export const blueNetwork = (): NetworkFragment =>
  dualNetwork({
    key: "blue",
    bridge: "blue0" as IfName,
    gateways: ["10.88.0.1/16" as IpPrefix, "fd00:88::1/64" as IpPrefix],
    masquerade: ["10.88.0.0/16" as Cidr, "fd00:88::/64" as Cidr],
  });

export const blueAddresses = ["10.88.0.2/16", "fd00:88::2/64"] as IpPrefix[];

/** A port of the default network's pod number `n`, published. */
export const published = (
  n: number,
  family: 4 | 6,
  more: Partial<PublishedDesired> & Pick<PublishedDesired, "hostPort" | "podPort">,
): PublishedDesired => ({
  protocol: "tcp",
  podIp: podAddress(n, family) as Ip,
  count: 1,
  bridge: "hyper0" as IfName,
  subnet: (family === 4 ? "192.168.123.0/24" : "fd00:123::/64") as Cidr,
  ...more,
});

/** A pod of the default network with one port, `tapN`, and addresses of both families. */
export function dualPod(
  n: number,
  ports?: readonly PublishedDesired[],
  more: { readonly isolated?: boolean } = {},
): PodFragment {
  const key = podIdOf(n);
  const port = {
    tap: `tap${n}` as IfName,
    bridge: "hyper0" as IfName,
    guestMac: podMac(n),
    guestAddresses: [`${podAddress(n, 4)}/24` as IpPrefix, `${podAddress(n, 6)}/64` as IpPrefix],
    alias: podMark(key, 0),
    isolated: more.isolated === true,
    mtu: 1500,
  };
  return { kind: "pod", key, ports: [port], ...(ports === undefined ? {} : { published: ports }) };
}

const batch = async (commands: readonly string[], namespace?: string): Promise<void> => {
  const inside = namespace === undefined ? [] : ["-n", namespace];
  await run(["ip", ...inside, "-batch", "-"], { stdin: `${commands.join("\n")}\n` });
};

/** A program in a namespace that serves and asks. */
export class End {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #waiting = new Map<number, (said: string) => void>();
  #last = 0;

  constructor(namespace: string | undefined) {
    const program = [process.execPath, `${import.meta.dirname}/traffic-end.ts`];
    const argv = namespace === undefined ? program : ["ip", "netns", "exec", namespace, ...program];
    this.#child = spawn(argv[0] as string, argv.slice(1));
    this.#child.stderr.pipe(process.stderr);
    createInterface({ input: this.#child.stdout }).on("line", (line) => {
      const { id, said } = JSON.parse(line) as { readonly id: number; readonly said: string };
      this.#waiting.get(id)?.(said);
    });
  }

  order(order: Order): Promise<string> {
    const id = ++this.#last;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.stdin.write(`${JSON.stringify({ id, ...order })}\n`);
    });
  }

  end(): void {
    this.#child.kill("SIGKILL");
  }
}

export interface SiteOptions {
  /** Done once the host is there, before podnet does anything. */
  readonly prepare?: () => Promise<unknown>;
  /** What podnet is given for a kernel. */
  readonly kernel?: (real: HostKernel) => HostKernel;
  /** Policies of pods by their ids. */
  readonly policies?: ReadonlyMap<string, Decisions>;
}

/**
 * A host — the namespace of this process — with a network of pods, and a machine outside that has a
 * route through it to everything. Pods are namespaces with their link on the bridge.
 */
export class FirewallSite implements AsyncDisposable {
  readonly host: HostNetwork;
  static #count = 0;
  readonly #prefix = `fw${process.pid}-${FirewallSite.#count++}`;
  readonly #ends = new Map<string, End>();

  private constructor(options: HostNetworkOptions) {
    this.host = openHostNetwork(options);
  }

  static async open(
    options: DriverUnderTest["options"],
    { prepare, kernel, policies }: SiteOptions = {},
  ): Promise<FirewallSite> {
    await ownNetns();
    // Addresses of links may be used at once.
    writeSysctl("net.ipv6.conf.default.accept_dad", "0");
    const site = new FirewallSite({
      chain: "HYPER",
      hostSeed: "test",
      ...options,
      ...(kernel === undefined ? {} : { kernel: kernel(openHostKernel()) }),
      policyOf: ({ key }) => policies?.get(key),
    });
    await site.#machine("outside", "out0", [`192.0.2.20/24`, "2001:db8:2::20/64"]);
    await batch([
      "address add 192.0.2.1/24 dev out0",
      "address add 192.0.2.2/24 dev out0",
      "address add 2001:db8:2::1/64 dev out0 nodad",
      // What leaves the host takes the other.
      "address add 2001:db8:2::2/64 dev out0 nodad preferred_lft 0",
      "link set dev out0 up",
    ]);
    await batch(
      ["route add default via 192.0.2.1", "route add ::/0 via 2001:db8:2::1"],
      site.#namespace("outside"),
    );
    await site.#converged();
    await prepare?.();
    return site;
  }

  /** Another podnet on its host, as after a start. */
  static again(
    _site: FirewallSite,
    options: DriverUnderTest["options"],
    kernel: DriverUnderTest["kernel"] = (real) => real,
  ): HostNetwork {
    const under = kernel(openHostKernel());
    return openHostNetwork({ chain: "HYPER", hostSeed: "test", ...options, kernel: under });
  }

  /** Links that have just come up get their last addresses and routes a little later. */
  async #converged(): Promise<void> {
    for (const machine of ["host", "outside"]) {
      const link = machine === "host" ? "out0" : "eth0";
      const shown = (): Promise<string> =>
        this.inside(machine, "ip", "-6", "route", "show", "table", "all", "dev", link);
      for (
        let i = 0;
        i < 100 &&
        !/^local fe80[^]*^multicast ff00|^multicast ff00[^]*^local fe80/m.test(await shown());
        i++
      )
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Makes a pod's namespace, whose link `ensure` makes a port. */
  async pod(n: number): Promise<void> {
    const name = `pod${n}`;
    const addresses = [`${podAddress(n, 4)}/24`, `${podAddress(n, 6)}/64`];
    await this.#machine(name, `tap${n}`, addresses, podMac(n));
    await batch(
      ["route add default via 192.168.123.1", "route add ::/0 via fd00:123::1"],
      this.#namespace(name),
    );
  }

  /** A pod of another network, `blue0`. */
  async bluePod(): Promise<void> {
    await this.#machine("blue", "tapblue", blueAddresses, podMac(200));
    await batch(["link set dev tapblue master blue0", "link set dev tapblue up"]);
    await batch(
      ["route add default via 10.88.0.1", "route add ::/0 via fd00:88::1"],
      this.#namespace("blue"),
    );
  }

  async serve(machine: string, protocol: "tcp" | "udp", ...ports: number[]): Promise<void> {
    for (const port of ports) {
      const said = await this.#end(machine).order({ do: "serve", protocol, port });
      if (said !== "up") throw new Error(`${machine} cannot serve ${port}: ${said}`);
    }
  }

  /** What is answered: the address one is seen with and the port reached; `refused`, `silence`. */
  ask(machine: string, protocol: "tcp" | "udp", address: string, port: number): Promise<string> {
    // Longer than what TCP sends again after, which it does when a link is quite new.
    return this.#ask(machine, protocol, address, port, 3000);
  }

  /** Begins a flow of UDP that never pauses, and answers what it heard first. */
  talk(machine: string, address: string, port: number): Promise<string> {
    return this.#end(machine).order({ do: "talk", address, port });
  }

  /** What it hears from now on. */
  heard(machine: string, port: number): Promise<string> {
    return this.#end(machine).order({ do: "heard", port, waitMs: 600 });
  }

  /** Expects nothing to come: what should have an answer has one long before. */
  askInVain(
    machine: string,
    protocol: "tcp" | "udp",
    address: string,
    port: number,
  ): Promise<string> {
    return this.#ask(machine, protocol, address, port, 600);
  }

  #ask(
    machine: string,
    protocol: "tcp" | "udp",
    address: string,
    port: number,
    waitMs: number,
  ): Promise<string> {
    return this.#end(machine).order({ do: "ask", protocol, address, port, waitMs });
  }

  /**
   * INITs of SCTP, sent one after the other: where the first that arrives at a pod seems to come
   * from, and the port.
   */
  async sctp(
    from: string,
    to: string,
    ...targets: readonly (readonly [address: string, port: number])[]
  ): Promise<string> {
    const script = `${import.meta.dirname}/sctp-init.py`;
    const family = targets.some(([address]) => address.includes(":")) ? "6" : "4";
    const argv = ["netns", "exec", this.#namespace(to), "python3", script, "hear", family];
    const listener = spawn("ip", argv);
    let said = "";
    const ended = new Promise<void>((resolve) => listener.on("close", () => resolve()));
    await new Promise<void>((resolve) => {
      listener.stdout.on("data", (bytes: Buffer) => {
        said += bytes.toString();
        resolve();
      });
    });
    await this.inside(from, "python3", script, "send", ...targets.flat().map(String));
    await ended;
    return said.replace("listening\n", "").trim();
  }

  async ensure(...fragments: readonly (NetworkFragment | PodFragment)[]): Promise<void> {
    for (const fragment of fragments) await this.host.apply(fragment, signal);
  }

  /** Runs a command in a machine's namespace. */
  async inside(machine: string, ...argv: readonly string[]): Promise<string> {
    return (await run(this.command(machine, ...argv))).stdout;
  }

  /** The words that run a command in a machine's namespace. */
  command(machine: string, ...argv: readonly string[]): [string, ...string[]] {
    const enter = machine === "host" ? [] : ["ip", "netns", "exec", this.#namespace(machine)];
    return [...enter, ...argv] as unknown as [string, ...string[]];
  }

  namespaceOf(machine: string): string {
    return this.#namespace(machine);
  }

  #namespace(machine: string): string {
    return `${this.#prefix}-${machine}`;
  }

  #end(machine: string): End {
    const end =
      this.#ends.get(machine) ?? new End(machine === "host" ? undefined : this.#namespace(machine));
    this.#ends.set(machine, end);
    return end;
  }

  async #machine(
    machine: string,
    link: string,
    addresses: readonly string[],
    mac?: Mac,
  ): Promise<void> {
    const name = this.#namespace(machine);
    await run(["ip", "netns", "add", name]);
    this.#made.push(name);
    await this.inside(machine, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0");
    await run([
      "ip",
      "link",
      "add",
      "name",
      link,
      "type",
      "veth",
      "peer",
      "name",
      "eth0",
      "netns",
      name,
    ]);
    await batch(
      [
        ...(mac === undefined ? [] : [`link set dev eth0 address ${mac}`]),
        ...addresses.map((address) => `address add ${nodad(address).join(" ")} dev eth0`),
        "link set dev eth0 up",
        "link set dev lo up",
      ],
      name,
    );
  }

  readonly #made: string[] = [];

  async [Symbol.asyncDispose](): Promise<void> {
    for (const end of this.#ends.values()) end.end();
    await this.host[Symbol.asyncDispose]();
    for (const name of this.#made) await run(["ip", "netns", "delete", name]);
  }
}

const nodad = (address: string): string[] =>
  address.includes(":") ? [address, "nodad"] : [address];

/** Whether frames between pods pass the rules, too: br_netfilter's settings for both families. */
export function bridgeNf(value: "0" | "1"): void {
  for (const family of ["iptables", "ip6tables"])
    writeSysctl(`net.bridge.bridge-nf-call-${family}`, value);
}
