import {
  formatAddress,
  type GuestLink,
  type GuestNetwork,
  type GuestRoute,
  maskOf,
} from "./hyperstart-network.ts";

/**
 * Whose `ip` the guest has. The lines of both were copied from busybox 1.35 and iproute2 6.1 on a
 * real kernel.
 */
export type IpFlavour = "busybox" | "iproute2";

export interface Output {
  readonly stdout?: string;
  readonly stderr?: string;
  readonly status: number;
}

/** `ip [-4|-6|-o] addr|link|route [show|list] [[dev] NAME]`, and `ip route del`. */
export function ip(args: readonly string[], network: GuestNetwork, flavour: IpFlavour): Output {
  const options = args.filter((arg) => arg.startsWith("-")).map((arg) => arg.replace(/^--/, "-"));
  const [what = "", ...rest] = args.filter((arg) => !arg.startsWith("-"));
  const words = ["show", "list", "ls"].includes(rest[0] ?? "") ? rest.slice(1) : rest;
  const view: View = {
    network,
    flavour,
    oneLine: options.some((option) => /^-o(?:neline)?$/.test(option)),
    v4: !options.includes("-6"),
    v6: !options.includes("-4"),
  };
  const named = words.includes("dev") ? words[words.indexOf("dev") + 1] : undefined;
  const unknown = options.find((option) => !/^-(?:4|6|o|oneline|family)$/.test(option));
  if (unknown !== undefined)
    return usage(flavour, `Option "${unknown}" is unknown, try "ip -help".`);
  if (/^r(?:o(?:ute?)?)?$/.test(what) && words[0] === "del")
    return deleteRoute(network, words.slice(1), named);
  if (/^l(?:i(?:nk?)?)?$/.test(what) && words[0] === "set")
    return setLink(network, words.slice(1), named);
  if (/^r(?:o(?:ute?)?)?$/.test(what)) return showRoutes(view, words, named);
  const isAddress = /^a(?:ddr(?:ess)?)?$/.test(what);
  if (!isAddress && !/^l(?:i(?:nk?)?)?$/.test(what))
    return usage(flavour, `Object "${what}" is unknown, try "ip help".`);
  const device = named ?? words.find((word) => word !== "up");
  const links = network.links.filter(({ name }) => device === undefined || name === device);
  if (device !== undefined && links.length === 0) {
    return flavour === "busybox"
      ? { stderr: `ip: can't find device '${device}'\n`, status: isAddress ? 1 : 2 }
      : { stderr: `Device "${device}" does not exist.\n`, status: 1 };
  }
  const lines = links.flatMap((link) => {
    if (isAddress && view.oneLine) return addressLines(view, link);
    const blocks = isAddress ? addressLines(view, link) : [];
    const both = view.v4 && view.v6;
    if (isAddress && !both && blocks.length === 0) return [];
    const head =
      both || !isAddress
        ? linkLines(view, link, isAddress)
        : linkLines(view, link, true).slice(0, 1);
    return view.oneLine ? [head.join("\\")] : [...head, ...blocks];
  });
  return { stdout: lines.map((line) => `${line}\n`).join(""), status: 0 };
}

/** `ip link set [dev] NAME up|down`. */
function setLink(
  network: GuestNetwork,
  words: readonly string[],
  device: string | undefined,
): Output {
  const link = network.find(device ?? words[0] ?? "");
  if (link === undefined) return { stderr: "ip: SIOCGIFFLAGS: No such device\n", status: 1 };
  if (words.at(-1) === "up") network.up(link);
  else network.down(link);
  return { status: 0 };
}

/**
 * `ip route del DEST [via GATEWAY] [dev NAME]`: the kernel removes the first that fits, or says
 * ESRCH.
 */
function deleteRoute(
  network: GuestNetwork,
  [dest = "", ...words]: readonly string[],
  device: string | undefined,
): Output {
  const via = words.includes("via") ? words[words.indexOf("via") + 1] : undefined;
  const found = network.routes.find((route) => {
    const text =
      route.length === 0 ? "default" : `${formatAddress(route.destination)}/${route.length}`;
    const gateway = route.gateway === undefined ? undefined : formatAddress(route.gateway);
    return (
      text === dest &&
      (via === undefined || via === gateway) &&
      (device === undefined || network.linkOf(route).name === device)
    );
  });
  if (found === undefined) return { stderr: "ip: RTNETLINK answers: No such process\n", status: 2 };
  network.deleteRoute(found);
  return { status: 0 };
}

interface View {
  readonly network: GuestNetwork;
  readonly flavour: IpFlavour;
  readonly oneLine: boolean;
  readonly v4: boolean;
  readonly v6: boolean;
}

function usage(flavour: IpFlavour, iproute2: string): Output {
  return flavour === "busybox"
    ? {
        stderr:
          "BusyBox v1.35.0 (Debian 1:1.35.0-4+deb12u1+b1) multi-call binary.\n\n" +
          "Usage: ip [OPTIONS] address|route|link|tunnel|neigh|rule [ARGS]\n",
        status: 1,
      }
    : { stderr: `${iproute2}\n`, status: 255 };
}

function isLoopback(link: GuestLink): boolean {
  return link.name === "lo";
}

function linkLines(view: View, link: GuestLink, addressView: boolean): string[] {
  const kind = isLoopback(link) ? ["LOOPBACK"] : ["BROADCAST", "MULTICAST"];
  const flags = [...kind, ...(link.up ? ["UP", "LOWER_UP"] : [])].join(",");
  const queue = !link.up ? "noop" : isLoopback(link) ? "noqueue" : "pfifo_fast";
  const state = !link.up ? "DOWN" : isLoopback(link) ? "UNKNOWN" : "UP";
  const extra =
    view.flavour === "busybox"
      ? ""
      : ` state ${state}${addressView ? "" : " mode DEFAULT"} group default`;
  const broadcast = isLoopback(link) ? link.mac : "ff:ff:ff:ff:ff:ff";
  return [
    `${link.index}: ${link.name}: <${flags}> mtu ${link.mtu} qdisc ${queue}${extra} qlen 1000`,
    `    link/${isLoopback(link) ? "loopback" : "ether"} ${link.mac} brd ${broadcast}`,
  ];
}

function addressLines(view: View, link: GuestLink): string[] {
  const texts: string[] = [];
  if (view.v4)
    for (const held of link.addresses) {
      const scope = isLoopback(link) ? "host" : "global";
      const secondary = view.network.isSecondary(link, held) ? "secondary " : "";
      texts.push(
        `inet ${formatAddress(held.address)}/${held.length} scope ${scope} ${secondary}${link.name}`,
      );
    }
  if (view.v6 && link.up)
    texts.push(
      isLoopback(link)
        ? "inet6 ::1/128 scope host "
        : `inet6 ${linkLocal(link.mac)}/64 scope link `,
    );
  const life = "       valid_lft forever preferred_lft forever";
  return view.oneLine
    ? texts.map((line) => `${link.index}: ${link.name}    ${line}\\${life}`)
    : texts.flatMap((line) => [`    ${line}`, life]);
}

/** The address the kernel gives a link of this MAC (RFC 4291, modified EUI-64). */
function linkLocal(mac: string): string {
  const bytes = mac.split(":").map((byte) => Number.parseInt(byte, 16));
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = bytes;
  const groups = [((a ^ 2) << 8) | b, (c << 8) | 0xff, 0xfe00 | d, (e << 8) | f];
  return `fe80::${groups.map((group) => group.toString(16)).join(":")}`;
}

function showRoutes(view: View, words: readonly string[], device: string | undefined): Output {
  if (!view.v4) {
    const up = view.network.links.filter((link) => link.up && !isLoopback(link));
    const line =
      view.flavour === "busybox"
        ? (name: string) => `fe80::/64 dev ${name}  metric 256 \n`
        : (name: string) => `fe80::/64 dev ${name} proto kernel metric 256 pref medium\n`;
    return { stdout: up.map(({ name }) => line(name)).join(""), status: 0 };
  }
  // Busybox minds the word `default` only when -4 stands before it.
  const defaultOnly =
    words.includes("default") && (view.flavour === "iproute2" || (view.v4 && !view.v6));
  const shown = view.network.routes.filter(
    (route) =>
      (device === undefined || view.network.linkOf(route).name === device) &&
      (!defaultOnly || route.length === 0),
  );
  return { stdout: shown.map((route) => `${routeLine(view, route)}\n`).join(""), status: 0 };
}

function routeLine(view: View, route: GuestRoute): string {
  const address = formatAddress(route.destination);
  const parts = [
    route.length === 0 ? "default" : route.length === 32 ? address : `${address}/${route.length}`,
  ];
  if (route.gateway !== undefined) parts.push(`via ${formatAddress(route.gateway)}`);
  parts.push(`dev ${view.network.linkOf(route).name}`);
  if (route.source !== undefined && view.flavour === "iproute2") parts.push("proto kernel");
  if (route.gateway === undefined) parts.push("scope link");
  const source = route.source === undefined ? "" : `src ${formatAddress(route.source)}`;
  if (source !== "") parts.push(view.flavour === "busybox" ? ` ${source}` : source);
  return `${parts.join(" ")} `;
}

/** Files the kernel makes of its state, by path. */
export function kernelFile(path: string, network: GuestNetwork): string | undefined {
  if (path === "/proc/net/route") return procNetRoute(network);
  const [, name = "", file = ""] = /^\/sys\/class\/net\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
  const link = network.find(name);
  if (!link) return undefined;
  const files: Readonly<Record<string, string | number>> = {
    address: link.mac,
    mtu: link.mtu,
    ifindex: link.index,
    operstate: !link.up ? "down" : isLoopback(link) ? "unknown" : "up",
    flags: isLoopback(link) ? (link.up ? "0x9" : "0x8") : link.up ? "0x1003" : "0x1002",
  };
  const content = files[file];
  return content === undefined ? undefined : `${content}\n`;
}

function procNetRoute(network: GuestNetwork): string {
  const hex = (address: number): string => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(address);
    return bytes.toString("hex").toUpperCase();
  };
  const head =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
  const lines = network.routes.map((route) => {
    const flags = 1 | (route.gateway === undefined ? 0 : 2) | (route.length === 32 ? 4 : 0);
    return [
      network.linkOf(route).name,
      hex(route.destination),
      hex(route.gateway ?? 0),
      `000${flags}`,
      "0\t0\t0",
      hex(maskOf(route.length)),
      "0\t0\t0",
    ].join("\t");
  });
  return [head, ...lines].map((line) => `${line.padEnd(127)}\n`).join("");
}
