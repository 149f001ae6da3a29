import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { parseCidr, parseIp, parseMac } from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import {
  type OverlayDelta,
  type OverlayDesired,
  type OverlayPeer,
  type OverlaySide,
  type VxlanBackend,
  peerKey,
  sideFamily,
  sideOf,
} from "../../network/model/overlay.ts";
import { openOverlayKernel } from "../../network/overlay/kernel.ts";
import { type OverlayOutcome, Overlays } from "../../network/overlay/overlays.ts";
import type { OverlayRules } from "../../network/bridge/overlay-rules.ts";
import { UdpTunnel } from "../../network/overlay/udp/tunnel.ts";
import { Tunnels } from "../../network/overlay/udp/tunnels.ts";

const exec = promisify(execFile);

/** Rules are not what is looked at. */
export const noRules: OverlayRules = {
  ensure: () => Promise.resolve([]),
  follow: () => Promise.resolve([]),
  diff: () => Promise.resolve([]),
  remove: () => Promise.resolve([]),
  describe: () => [],
};

/** A network namespace that stands for a host, and one on it that stands for its pod. */
export interface OverlayHost extends AsyncDisposable {
  readonly n: number;
  readonly name: string;
  readonly overlays: Overlays;
  /** Runs a command, its words split at blanks, as this host. */
  run(command: string): Promise<string>;
  /** As its pod does. */
  pod(command: string): Promise<string>;
  /** Whether its pod gets an answer from this address. */
  reaches(address: string): Promise<boolean>;
}

export const hostAddress = (n: number): string => `192.0.2.${n}`;
export const hostAddress6 = (n: number): string => `2001:db8:2::${n}`;
export const podAddress = (n: number): string => `10.77.${n}.2`;
export const podAddress6 = (n: number): string => `fd00:77:0:${n}::2`;
export const vtepMac = (n: number, family: 4 | 6 = 4): string =>
  `02:00:00:00:0${family}:0${n.toString(16)}`;

/**
 * Hosts on one link: `lan` is a bridge in a namespace of its own, host N has 192.0.2.N and
 * 2001:db8:2::N on eth0, and its pod is 10.77.N.2 and fd00:77:0:N::2 behind it, as a pod's network
 * would have it. Refuses outside of scripts/sandbox.
 */
export async function openOverlayHosts(
  count: number,
  rules: OverlayRules = noRules,
): Promise<AsyncDisposableStack & { readonly hosts: readonly OverlayHost[] }> {
  if (process.env["PODNET_SANDBOX"] !== "1") throw new Error("Run this below scripts/sandbox");
  await using made = new AsyncDisposableStack();
  const inside = async (where: string, command: string): Promise<string> =>
    (await exec("ip", ["netns", "exec", where, ...words(command)], { maxBuffer: 1 << 26 })).stdout;
  const namespace = async (name: string): Promise<void> => {
    await exec("ip", ["netns", "add", name]);
    made.defer(() => exec("ip", ["netns", "del", name]).then(() => undefined));
    // Without link-local addresses at once no host would look for a pod behind it.
    const forwards = "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1";
    await inside(name, `sysctl -qw ${forwards} net.ipv6.conf.default.accept_dad=0`);
  };
  // Another test file has its own.
  const lan = `lan${process.pid}`;
  await namespace(lan);
  await batch(["link add lan0 type bridge forward_delay 0", "link set lan0 up"], lan);
  const hosts: OverlayHost[] = [];
  for (let n = 1; n <= count; n++) {
    const name = `host${n}-${process.pid}`;
    const pod = `pod${n}-${process.pid}`;
    await namespace(name);
    await namespace(pod);
    await batch([
      `link add eth0 netns ${name} type veth peer name port${n} netns ${lan}`,
      `link add pod0 netns ${name} type veth peer name eth0 netns ${pod}`,
    ]);
    await batch([`link set port${n} master lan0 up`], lan);
    await batch(
      [
        "link set lo up",
        "link set eth0 up",
        `addr add ${hostAddress(n)}/24 dev eth0`,
        `addr add ${hostAddress6(n)}/64 dev eth0 nodad`,
        "link set pod0 up",
        `addr add 10.77.${n}.1/24 dev pod0`,
        `addr add fd00:77:0:${n}::1/64 dev pod0 nodad`,
      ],
      name,
    );
    await batch(
      [
        "link set eth0 up",
        `addr add ${podAddress(n)}/24 dev eth0`,
        `addr add ${podAddress6(n)}/64 dev eth0 nodad`,
        `route add default via 10.77.${n}.1`,
        `route add default via fd00:77:0:${n}::1`,
      ],
      pod,
    );
    const asHost = (command: string): Promise<string> => inside(name, command);
    const overlays = withNetns(
      `/run/netns/${name}`,
      () => new Overlays(rules, overlayKernelOf(name)),
    );
    made.use(overlays);
    hosts.push({
      n,
      name,
      overlays,
      run: asHost,
      pod: (command) => inside(pod, command),
      async reaches(address) {
        try {
          await inside(pod, `ping -n -c 1 -W 1 ${address}`);
          return true;
        } catch {
          return false;
        }
      },
      [Symbol.asyncDispose]: () => overlays[Symbol.asyncDispose](),
    });
  }
  return Object.assign(made.move(), { hosts });
}

/**
 * Its settings are those of the namespace it was opened in, wherever the thread is when they are
 * set.
 */
function overlayKernelOf(name: string): ReturnType<typeof openOverlayKernel> {
  const { netlink, sysctl, checksums } = openOverlayKernel();
  const path = `/run/netns/${name}`;
  return {
    netlink,
    sysctl: {
      read: (key) => withNetns(path, () => sysctl.read(key)),
      write: (key, value) => withNetns(path, () => sysctl.write(key, value)),
    },
    checksums: {
      left: (link) => withNetns(path, () => checksums.left(link)),
      leave: (link, left) => withNetns(path, () => checksums.leave(link, left)),
    },
    tunnels: new Tunnels((birth, onEnd) => withNetns(path, () => new UdpTunnel(birth, onEnd))),
  };
}

const words = (command: string): string[] => command.split(" ");

async function batch(lines: readonly string[], name?: string): Promise<void> {
  const where = name === undefined ? [] : ["-n", name];
  await run(["ip", ...where, "-batch", "-"], { stdin: `${lines.join("\n")}\n` });
}

export const vxlan: VxlanBackend = {
  kind: "vxlan",
  vni: 1,
  port: 0,
  gbp: false,
  learning: false,
  directRouting: false,
};

export interface OverlayRequest {
  readonly backend?: OverlayDesired["backend"];
  readonly families?: readonly (4 | 6)[];
  /** The other hosts, by number. */
  readonly peers?: readonly number[];
  readonly more?: Partial<OverlayDesired>;
}

/** What host N wants of the overlay 10.77.0.0/16, with two other hosts unless said otherwise. */
export function overlayOf(n: number, intended: OverlayRequest = {}): OverlayDesired {
  const {
    backend = vxlan,
    families = [4],
    peers = [1, 2, 3].filter((each) => each !== n),
  } = intended;
  const sides = families.map((family): OverlaySide => {
    const four = family === 4;
    return {
      network: parseCidr(four ? "10.77.0.0/16" : "fd00:77::/48"),
      subnet: subnetOf(n, family),
      publicIp: publicIpOf(n, family),
      ...(backend.kind === "vxlan"
        ? {
            vtep: {
              device: parseIfName(four ? "flannel.1" : "flannel-v6.1"),
              mac: parseMac(vtepMac(n, family)),
            },
          }
        : {}),
      peers: peers.map((peer) => peerOf(peer, family)),
    };
  });
  return {
    name: "default",
    backend,
    parent: parseIfName("eth0"),
    sides,
    forward: true,
    ...intended.more,
  };
}

/** How the peers of one request differ from those of another. */
export function deltaOf(before: OverlayDesired, after: OverlayDesired): OverlayDelta {
  const without = (some: readonly OverlayPeer[], others: readonly OverlayPeer[]): OverlayPeer[] => {
    const keys = new Set(others.map(peerKey));
    return some.filter((peer) => !keys.has(peerKey(peer)));
  };
  return new Map(
    after.sides.map((side) => {
      const family = sideFamily(side);
      const was = sideOf(before, family)?.peers ?? [];
      return [family, { removed: without(was, side.peers), added: without(side.peers, was) }];
    }),
  );
}

/**
 * Has a host follow as podnetd does (`KernelFollower`): by a delta, or by a look where that does
 * not do.
 */
export async function followDelta(
  { overlays }: Pick<OverlayHost, "overlays">,
  before: OverlayDesired,
  after: OverlayDesired,
  signal: AbortSignal,
): Promise<OverlayOutcome> {
  const outcome = await overlays.follow(after.name, deltaOf(before, after), signal);
  return outcome ?? (await overlays.ensure(after, signal));
}

export const peerOf = (n: number, family: 4 | 6 = 4): OverlayPeer => ({
  subnet: subnetOf(n, family),
  publicIp: publicIpOf(n, family),
  vtepMac: parseMac(vtepMac(n, family)),
});

const subnetOf = (n: number, family: 4 | 6): OverlayPeer["subnet"] =>
  parseCidr(family === 4 ? `10.77.${n}.0/24` : `fd00:77:0:${n}::/64`);

const publicIpOf = (n: number, family: 4 | 6): OverlayPeer["publicIp"] =>
  parseIp(family === 4 ? hostAddress(n) : hostAddress6(n));
