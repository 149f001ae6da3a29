import type { HostsLab } from "./hosts.ts";
import type { OverlayLabHost } from "./overlay-host.ts";
import { until } from "./until.ts";

interface Value {
  readonly PublicIP: string;
  readonly PublicIPv6: string | null;
  readonly BackendType: string;
  readonly BackendData?: { readonly VNI: number; readonly VtepMAC: string };
  readonly BackendV6Data?: { readonly VNI: number; readonly VtepMAC: string };
}

/** A lease as it stands in etcd, one family of it. */
interface Side {
  readonly family: 4 | 6;
  readonly subnet: string;
  readonly base: string;
  readonly publicIp: string;
  readonly mac: string | undefined;
  readonly device: string;
}

/** The lab's own reading of leases: neither podnet's nor that of flannel's stand-in. */
function sidesOf(key: string, text: string): Side[] {
  const value = JSON.parse(text) as Value;
  return key.split("&").map((part, index): Side => {
    const [base = "", length = ""] = part.split("-");
    const rest = { subnet: `${base}/${length}`, base };
    return index === 0
      ? {
          ...rest,
          family: 4,
          publicIp: value.PublicIP,
          mac: value.BackendData?.VtepMAC,
          device: "flannel.1",
        }
      : {
          ...rest,
          family: 6,
          publicIp: String(value.PublicIPv6),
          mac: value.BackendV6Data?.VtepMAC,
          device: "flannel-v6.1",
        };
  });
}

/** What flannel's facts say a host's kernel has for the leases there are, one line each. */
async function wanted(lab: HostsLab, host: OverlayLabHost): Promise<string[]> {
  const all = [...(await lab.leases())].filter(([key]) =>
    /^[\d.]+-\d+(?:&[\da-f:]+-\d+)?$/.test(key),
  );
  // (Its address may be another one by now.)
  const ownGateway = host.environment()?.subnet.replace(/\d+$/, "");
  const lines: string[] = [];
  for (const [key, text] of all) {
    if (!text.startsWith("{")) continue;
    const own = `${key.split("-")[0]}`.replace(/0$/, "1/") === ownGateway;
    for (const side of sidesOf(key, text)) {
      const { device, family, subnet, base, publicIp, mac } = side;
      if (mac === undefined) {
        if (!own) lines.push(`route ${subnet} via ${publicIp} dev eth0`);
      } else if (own) {
        lines.push(`device ${device} ${mac} id 1 local ${publicIp} link eth0 port 8472 up`);
        lines.push(`address ${base}/${family === 4 ? 32 : 128} dev ${device}`);
      } else {
        lines.push(`neighbour ${base} lladdr ${mac} dev ${device}`);
        lines.push(`fdb ${mac} dst ${publicIp} dev ${device}`);
        lines.push(`route ${subnet} via ${base} dev ${device} onlink`);
      }
    }
  }
  return lines.toSorted();
}

interface LinkJson {
  readonly ifname: string;
  readonly address: string;
  readonly flags: readonly string[];
  readonly linkinfo: {
    readonly info_data: {
      readonly id: number;
      readonly local?: string;
      readonly local6?: string;
      readonly link: string;
      readonly port: number;
      readonly learning?: boolean;
    };
  };
  readonly addr_info: readonly {
    readonly local: string;
    readonly prefixlen: number;
    readonly scope: string;
  }[];
}

interface NeighbourJson {
  readonly dst: string;
  readonly lladdr: string;
}

interface EntryJson {
  readonly mac: string;
  readonly dst?: string;
}

interface RouteJson {
  readonly dst: string;
  readonly gateway?: string;
  readonly dev: string;
  readonly flags: readonly string[];
}

/** The lines of what there is. */
async function found(host: OverlayLabHost): Promise<string[]> {
  const lines: string[] = [];
  const json = async (line: string): Promise<unknown[]> => {
    const text = await host.machine.run(...(line.split(" ") as [string]));
    return JSON.parse(text === "" ? "[]" : text) as unknown[];
  };
  // (Of each other link there is an empty object.)
  const links = ((await json("ip -j -d addr show type vxlan")) as LinkJson[]).filter(
    ({ ifname }) => ifname,
  );
  for (const { ifname, address, flags, linkinfo, addr_info } of links) {
    const { id, local, local6, link, port, learning } = linkinfo.info_data;
    const state = `${flags.includes("UP") ? "up" : "down"}${learning === true ? " learning" : ""}`;
    const from = local ?? local6 ?? "nowhere";
    lines.push(
      `device ${ifname} ${address} id ${id} local ${from} link ${link} port ${port} ${state}`,
    );
    for (const one of addr_info.filter(({ scope }) => scope === "global"))
      lines.push(`address ${one.local}/${one.prefixlen} dev ${ifname}`);
    const neighbours = await json(`ip -j neigh show dev ${ifname} nud permanent`);
    for (const { dst, lladdr } of neighbours as NeighbourJson[])
      lines.push(`neighbour ${dst} lladdr ${lladdr} dev ${ifname}`);
    for (const { mac, dst } of (await json(`bridge -j fdb show dev ${ifname}`)) as EntryJson[])
      if (dst !== undefined) lines.push(`fdb ${mac} dst ${dst} dev ${ifname}`);
  }
  for (const family of [4, 6])
    for (const route of (await json(`ip -j -${family} route show`)) as RouteJson[]) {
      const { dst, gateway, dev, flags } = route;
      if (gateway === undefined || dst === "default") continue;
      const onlink = flags.includes("onlink") ? " onlink" : "";
      lines.push(`route ${dst} via ${gateway} dev ${dev}${onlink}`);
    }
  return lines.toSorted();
}

/**
 * Waits until the host's kernel has what flannel would have made for the leases there are, no more
 * and no less.
 */
export async function isAsFlannelLeavesIt(
  lab: HostsLab,
  host: OverlayLabHost,
  limitMs = 30_000,
): Promise<void> {
  let difference = "";
  await until(
    `host ${host.n} (${host.kind}) to be as its leases say`,
    async () => {
      const [want, have] = [await wanted(lab, host), await found(host)];
      difference = [
        ...want.filter((line) => !have.includes(line)).map((line) => `- ${line}`),
        ...have.filter((line) => !want.includes(line)).map((line) => `+ ${line}`),
      ].join("\n");
      return difference === "" && want.length === have.length;
    },
    limitMs,
    () => `${difference}\n${host.log().slice(-3000)}`,
  );
}
