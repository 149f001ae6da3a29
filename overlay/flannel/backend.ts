import { broken, type Fields, fieldsOf, flagOf, textOf, wholeOf } from "./json.ts";

/**
 * How packets get from host to host, as the overlay's configuration says. Ports of 0 and absent
 * MTUs are "as usual".
 */
export type Backend =
  | {
      readonly type: "vxlan";
      readonly vni: number;
      /** 0: the kernel's, 8472. */
      readonly port: number;
      readonly mtu: number | undefined;
      readonly gbp: boolean;
      readonly learning: boolean;
      readonly directRouting: boolean;
    }
  | { readonly type: "host-gw" }
  | { readonly type: "udp"; readonly port: number }
  | { readonly type: "alloc" }
  | { readonly type: "ipip"; readonly directRouting: boolean }
  | {
      readonly type: "wireguard";
      readonly listenPort: number;
      readonly listenPortV6: number;
      readonly psk: string;
      readonly keepaliveSeconds: number;
      readonly mode: WireguardMode;
      readonly mtu: number | undefined;
    }
  | {
      readonly type: "ipsec";
      readonly psk: string;
      readonly udpEncap: boolean;
      readonly espProposal: string;
    }
  | {
      readonly type: "extension";
      readonly preStartup: string;
      readonly postStartup: string;
      readonly subnetAdd: string;
      readonly subnetRemove: string;
    };

export type BackendType = Backend["type"];

const wireguardModes = ["separate", "auto", "ipv4", "ipv6"] as const;
type WireguardMode = (typeof wireguardModes)[number];

const port = [0, 65_535] as const;
/** Least key that flannel's ipsec takes, characters. */
const ipsecKeyLength = 96;

/** Reads each type's options, with flannel's defaults. */
const readers: { readonly [T in BackendType]: (fields: Fields) => Backend & { type: T } } = {
  vxlan: (fields) => ({
    type: "vxlan",
    vni: wholeOf(fields, "Backend.VNI", 1, [0, 0xff_ffff]),
    port: wholeOf(fields, "Backend.Port", 0, port),
    mtu: mtuOf(fields),
    gbp: flagOf(fields, "Backend.GBP", false),
    learning: flagOf(fields, "Backend.Learning", false),
    directRouting: flagOf(fields, "Backend.DirectRouting", false),
  }),
  "host-gw": () => ({ type: "host-gw" }),
  udp: (fields) => ({ type: "udp", port: wholeOf(fields, "Backend.Port", 8285, [1, 65_535]) }),
  alloc: () => ({ type: "alloc" }),
  ipip: (fields) => ({
    type: "ipip",
    directRouting: flagOf(fields, "Backend.DirectRouting", false),
  }),
  wireguard: (fields) => ({
    type: "wireguard",
    listenPort: wholeOf(fields, "Backend.ListenPort", 51_820, [1, 65_535]),
    listenPortV6: wholeOf(fields, "Backend.ListenPortV6", 51_821, [1, 65_535]),
    psk: textOf(fields, "Backend.PSK"),
    keepaliveSeconds: wholeOf(fields, "Backend.PersistentKeepaliveInterval", 0, port),
    mode: wireguardMode(textOf(fields, "Backend.Mode")),
    mtu: mtuOf(fields),
  }),
  ipsec: (fields) => ({
    type: "ipsec",
    psk: ipsecKey(textOf(fields, "Backend.PSK")),
    udpEncap: flagOf(fields, "Backend.UDPEncap", false),
    espProposal: textOf(fields, "Backend.ESPProposal") || "aes128gcm16-sha256-prfsha256-ecp256",
  }),
  extension: (fields) => ({
    type: "extension",
    preStartup: textOf(fields, "Backend.PreStartupCommand"),
    postStartup: textOf(fields, "Backend.PostStartupCommand"),
    subnetAdd: textOf(fields, "Backend.SubnetAddCommand"),
    subnetRemove: textOf(fields, "Backend.SubnetRemoveCommand"),
  }),
};

const isBackendType = (type: string): type is BackendType => Object.hasOwn(readers, type);

/**
 * Reads `Backend`. Without one it is udp, whatever flannel's documentation says. Throws
 * `OVERLAY_CONFIG_INVALID`.
 */
export function parseBackend(value: unknown): Backend {
  const fields = fieldsOf(value ?? {});
  if (fields === undefined)
    throw broken("type", "Backend", "Backend is no object", 'Write {"Type": "vxlan"}');
  const type = textOf(fields, "Backend.Type").toLowerCase() || "udp";
  if (isBackendType(type)) return readers[type](fields);
  throw broken(
    "backend",
    "Backend.Type",
    `There is no backend "${type}"`,
    `Use one of ${Object.keys(readers).join(", ")}`,
  );
}

function mtuOf(fields: Fields): number | undefined {
  const mtu = wholeOf(fields, "Backend.MTU", 0, [0, 65_535]);
  if (mtu === 0) return undefined;
  return wholeOf(fields, "Backend.MTU", 0, [576, 65_535]);
}

function wireguardMode(text: string): WireguardMode {
  if (text === "") return "separate";
  const mode = wireguardModes.find((one) => one === text);
  if (mode !== undefined) return mode;
  throw broken(
    "wireguard-mode",
    "Backend.Mode",
    `"${text}" is no mode of wireguard`,
    `Use one of ${wireguardModes.join(", ")}`,
  );
}

function ipsecKey(psk: string): string {
  if (psk.length >= ipsecKeyLength) return psk;
  throw broken(
    "ipsec-key",
    "Backend.PSK",
    `The key of ipsec has ${psk.length} characters`,
    `Write at least ${ipsecKeyLength} of them`,
  );
}
