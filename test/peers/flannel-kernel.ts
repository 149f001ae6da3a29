import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Attributes, FlannelConfig, Subnets } from "./flannel-format.ts";
import { type Net, addressIn, netText } from "./flannel-net.ts";

const exec = promisify(execFile);

const run = async (program: string, ...words: readonly string[]): Promise<string> =>
  (await exec(program, words, { maxBuffer: 1 << 26 })).stdout;

/** A command as it is written in a shell. */
const ip = (line: string): Promise<string> => run("ip", ...line.split(" "));

/** The outer interface and its addresses. */
export interface Outer {
  readonly name: string;
  readonly mtu: number;
  readonly ip: string;
  readonly ip6: string | undefined;
}

/** Reads what flannel takes from its interface. */
export async function readOuter(name: string): Promise<Outer> {
  const [link] = JSON.parse(await ip(`-j addr show dev ${name}`)) as [
    { mtu: number; addr_info: { family: string; scope: string; local: string }[] },
  ];
  const first = (family: string): string | undefined =>
    link.addr_info.find((one) => one.family === family && one.scope === "global")?.local;
  const own = first("inet");
  if (own === undefined) throw new Error(`${name} has no address`);
  return { name, mtu: link.mtu, ip: own, ip6: first("inet6") };
}

/** What a backend does in the kernel. */
export interface Backend {
  /** What a lease says besides addresses. */
  readonly data?: unknown;
  readonly data6?: unknown;
  readonly mtu: number;
  /** Once the subnet is known. */
  configure(subnets: Subnets): Promise<void>;
  add(subnets: Subnets, attributes: Attributes): Promise<void>;
  remove(subnets: Subnets, attributes: Attributes): Promise<void>;
}

interface Vtep {
  readonly device: string;
  readonly mac: string;
}

const vxlanOptions = (config: FlannelConfig, outer: Outer, local: string): string =>
  `vxlan id ${config.vni} local ${local} dev ${outer.name} srcport 0 0 ` +
  `dstport ${config.port || 8472} nolearning ttl auto ageing 300 udpcsum`;

/** Takes the device that is there when what flannel compares agrees, with its MAC; or makes it. */
async function vtep(
  device: string,
  config: FlannelConfig,
  outer: Outer,
  local: string,
  mtu: number,
): Promise<Vtep> {
  const macOf = async (): Promise<string> =>
    /link\/ether (\S+)/.exec(await ip(`link show dev ${device}`))?.[1] ?? "";
  const there = await ip(`-d link show dev ${device}`).catch(() => "");
  const agrees = [
    "vxlan",
    `id ${config.vni}`,
    `local ${local}`,
    `dev ${outer.name}`,
    `dstport ${config.port || 8472}`,
  ];
  if (!agrees.every((words) => there.includes(` ${words} `))) {
    if (there !== "") await ip(`link del dev ${device}`);
    const random = Array.from({ length: 6 }, () => Math.floor(Math.random() * 256));
    // Locally administered, of one station.
    random[0] = ((random[0] as number) & 0xfc) | 2;
    const mac = random.map((byte) => byte.toString(16).padStart(2, "0")).join(":");
    await ip(
      `link add ${device} address ${mac} mtu ${mtu} type ${vxlanOptions(config, outer, local)}`,
    );
    await run("sysctl", "-qw", `net.ipv6.conf.${device}.accept_ra=0`).catch(() => "");
  }
  return { device, mac: await macOf() };
}

const family = (net: Net): string => `-${net.family}`;

/** Flannel's vxlan: one device for each family. */
export async function openVxlan(config: FlannelConfig, outer: Outer): Promise<Backend> {
  const mtu = (config.mtu ?? outer.mtu) - 50;
  const on = (version: 4 | 6): boolean =>
    config.families.some(({ network }) => network.family === version);
  const name = (start: string): string => `${start}.${config.vni}`;
  const v4 = on(4) ? await vtep(name("flannel"), config, outer, outer.ip, mtu) : undefined;
  const v6 =
    on(6) && outer.ip6 !== undefined
      ? await vtep(name("flannel-v6"), config, outer, outer.ip6, mtu)
      : undefined;
  const dataOf = (made: Vtep | undefined) =>
    made === undefined ? undefined : { VNI: config.vni, VtepMAC: made.mac };

  /**
   * The three for a peer's subnet of one family, or the route alone when it is on the same link.
   */
  const entries = async (
    made: Vtep | undefined,
    subnet: Net | undefined,
    to: string | undefined,
    data: unknown,
  ) => {
    const mac = (data as { VtepMAC?: string } | undefined)?.VtepMAC;
    if (made === undefined || subnet === undefined || to === undefined || mac === undefined)
      return undefined;
    const direct =
      config.directRouting && !(await ip(`${family(subnet)} route get ${to}`)).includes(" via ");
    const base = addressIn(subnet);
    return {
      direct: direct ? `${netText(subnet)} via ${to}` : undefined,
      neighbour: `${base} lladdr ${mac} dev ${made.device}`,
      fdb: [mac, "dev", made.device, "dst", to, "self", "permanent"],
      route: `${netText(subnet)} via ${base} dev ${made.device} onlink`,
      family: family(subnet),
    };
  };
  const both = async (subnets: Subnets, attributes: Attributes) =>
    [
      await entries(v4, subnets.v4, attributes.publicIp, attributes.data),
      await entries(v6, subnets.v6, attributes.publicIp6, attributes.data6),
    ].filter((one) => one !== undefined);

  return {
    data: dataOf(v4),
    data6: dataOf(v6),
    mtu,
    async configure(subnets) {
      for (const [made, net] of [
        [v4, subnets.v4],
        [v6, subnets.v6],
      ] as const) {
        if (made === undefined || net === undefined) continue;
        await ip(
          `${family(net)} addr replace ${addressIn(net)}/${net.family === 4 ? 32 : 128} dev ${made.device}`,
        );
        await ip(`link set dev ${made.device} up`);
      }
    },
    async add(subnets, attributes) {
      if (attributes.backendType !== "vxlan") return;
      for (const one of await both(subnets, attributes)) {
        if (one.direct !== undefined) {
          await ip(`${one.family} route replace ${one.direct}`);
          continue;
        }
        // The route last: the kernel would ask for its gateway.
        await ip(`${one.family} neigh replace ${one.neighbour} nud permanent`);
        await run("bridge", "fdb", "replace", ...one.fdb);
        await ip(`${one.family} route replace ${one.route}`);
      }
    },
    async remove(subnets, attributes) {
      if (attributes.backendType !== "vxlan") return;
      for (const one of await both(subnets, attributes)) {
        const quiet = (gone: Promise<string>) => gone.catch(() => "");
        if (one.direct !== undefined) {
          await quiet(ip(`${one.family} route del ${one.direct}`));
          continue;
        }
        await quiet(ip(`${one.family} neigh del ${one.neighbour}`));
        await quiet(run("bridge", "fdb", "del", ...one.fdb));
        await quiet(ip(`${one.family} route del ${one.route}`));
      }
    },
  };
}

/** Flannel's host-gw: routes, looked after every ten seconds. */
export function openHostGw(outer: Outer): Backend {
  const wanted = new Map<string, { net: Net; line: string }>();
  const routes = (subnets: Subnets, attributes: Attributes) =>
    (
      [
        [subnets.v4, attributes.publicIp],
        [subnets.v6, attributes.publicIp6],
      ] as const
    ).flatMap(([net, to]) =>
      net === undefined || to === undefined
        ? []
        : [{ net, line: `${netText(net)} via ${to} dev ${outer.name}` }],
    );
  setInterval(() => {
    // One that is there is refused, and stays.
    for (const { net, line } of wanted.values())
      ip(`${family(net)} route add ${line}`).catch(() => "");
  }, 10_000).unref();
  return {
    mtu: outer.mtu,
    configure: () => Promise.resolve(),
    async add(subnets, attributes) {
      if (attributes.backendType !== "host-gw") return;
      for (const route of routes(subnets, attributes)) {
        const { net, line } = route;
        wanted.set(netText(net), route);
        const there = await ip(`${family(net)} route show ${netText(net)}`);
        if (there !== "" && !there.startsWith(`${line} `))
          await ip(`${family(net)} route del ${netText(net)}`);
        // A gateway that cannot be reached is logged, and no more.
        await ip(`${family(net)} route replace ${line}`).catch((error: unknown) => {
          console.error(String(error));
        });
      }
    },
    async remove(subnets, attributes) {
      if (attributes.backendType !== "host-gw") return;
      for (const { net, line } of routes(subnets, attributes)) {
        wanted.delete(netText(net));
        await ip(`${family(net)} route del ${line}`).catch(() => "");
      }
    },
  };
}
