import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { unshareNetns } from "../../linux/namespaces/netns.ts";
import { Attachments } from "../../network/containers/attachments.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { type AttachmentKernel, openAttachmentKernel } from "../../network/containers/kernel.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { attachmentMark } from "../../network/model/ownership.ts";
import type { DriverUnderTest } from "./firewall-drivers.ts";
import { dualNetwork } from "./firewall-site.ts";
import { ownNetns } from "./netns.ts";
import { ip } from "./network.ts";

const { signal } = new AbortController();

export interface AttachmentSiteOptions {
  readonly rules?: DriverUnderTest["options"];
  readonly kernel?: (real: AttachmentKernel) => AttachmentKernel;
}

/** A host with the default network of both families, and containers on it that are namespaces. */
export class AttachmentSite implements AsyncDisposable {
  readonly host: HostNetwork;
  readonly attachments: Attachments;
  readonly #containers = new Set<string>();
  static #count = 0;
  readonly #prefix = `ct${process.pid}-${AttachmentSite.#count++}`;

  private constructor({ rules, kernel = (real) => real }: AttachmentSiteOptions) {
    this.host = openHostNetwork({ iptables: "off", chain: "HYPER", hostSeed: "test", ...rules });
    this.attachments = new Attachments(this.host, kernel(openAttachmentKernel()));
  }

  /** The host is a new namespace, in which this process is from then on. */
  static async open(options: AttachmentSiteOptions = {}): Promise<AttachmentSite> {
    await ownNetns();
    unshareNetns();
    await ip("link set lo up");
    const site = new AttachmentSite(options);
    await site.host.apply(dualNetwork({ firewall: options.rules !== undefined }), signal);
    return site;
  }

  name(n: number): string {
    return `${this.#prefix}-${n}`;
  }

  /** A namespace with nothing in it. */
  async container(n: number): Promise<string> {
    await ip(`netns add ${this.name(n)}`);
    this.#containers.add(this.name(n));
    return `/run/netns/${this.name(n)}`;
  }

  async lose(n: number): Promise<void> {
    this.#containers.delete(this.name(n));
    await ip(`netns delete ${this.name(n)}`);
  }

  /** Container `n` as 192.168.123.n and fd00:123::n. */
  fragment(n: number, more: Partial<AttachmentFragment> = {}): AttachmentFragment {
    const key = `c${n}`;
    return {
      kind: "attachment",
      key,
      netns: `/run/netns/${this.name(n)}`,
      hostLink: `pc${n}` as IfName,
      guestLink: "eth0",
      bridge: "hyper0" as IfName,
      mac: macOf(n),
      mtu: 1400,
      addresses: [`192.168.123.${n}/24` as IpPrefix, `fd00:123::${n}/64` as IpPrefix],
      routes: [
        { destination: "0.0.0.0/0" as Cidr, gateway: "192.168.123.1" as Ip },
        { destination: "::/0" as Cidr, gateway: "fd00:123::1" as Ip },
      ],
      alias: attachmentMark(key),
      isolated: false,
      ...more,
    };
  }

  /** Runs `ip` in a container. */
  inside(n: number, command: string): Promise<string> {
    return ip(`-n ${this.name(n)} ${command}`);
  }

  /** Runs a program there; its exit code. */
  async does(n: number | "host", argv: readonly [string, ...string[]]): Promise<number> {
    const whole: readonly [string, ...string[]] =
      n === "host" ? argv : ["ip", "netns", "exec", this.name(n), ...argv];
    return (await run(whole, { okCodes: [0, 1, 2] })).exitCode;
  }

  /** Whether an echo comes back. */
  async reaches(from: number | "host", to: string): Promise<boolean> {
    return (await this.does(from, ["ping", "-c", "1", "-W", "2", to])) === 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const name of this.#containers) await ip(`netns delete ${name}`);
    this.attachments[Symbol.dispose]();
    await this.host[Symbol.asyncDispose]();
  }
}

export const macOf = (n: number): Mac => `0a:58:c0:a8:7b:${n.toString(16).padStart(2, "0")}` as Mac;
