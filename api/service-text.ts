import { isIp } from "../core/address.ts";
import { printable } from "../core/names.ts";
import { invalid } from "./fields.ts";

/** One `ServicePort` of the API, as people write it. */
export interface ServicePortText {
  readonly port: number;
  /** 0: the same. */
  readonly targetPort: number;
  /** Empty: tcp. */
  readonly protocol: string;
}

/** One `ServiceBackend` of the API, as people write it. */
export interface BackendText {
  readonly pod: string;
  readonly address: string;
  readonly weight?: number;
  /** 0: the target of the service's port. */
  readonly port: number;
}

/** One `BackendCheck` of the API, as people write it. */
export interface BackendCheckText {
  readonly path: string;
  readonly port?: number;
  readonly intervalS?: number;
  readonly timeoutS?: number;
  readonly rise?: number;
  readonly fall?: number;
}

const checkKeys = {
  port: "port",
  interval: "intervalS",
  timeout: "timeoutS",
  rise: "rise",
  fall: "fall",
} as const;

/** Reads `tcp` or `/PATH`, with `,port=`, `,interval=`, `,timeout=`, `,rise=` and `,fall=`. */
export function parseBackendCheck(text: string, field = "check"): BackendCheckText {
  const [kind = "", ...settings] = text.split(",");
  const found = settings.map((setting) => {
    const [, key = "", value] = /^([a-z]{1,10})=([0-9]{1,5})$/.exec(setting) ?? [];
    return [Object.hasOwn(checkKeys, key) ? key : undefined, Number(value)] as const;
  });
  const isKnown = found.every(([key]) => key !== undefined);
  const isOnce = new Set(found.map(([key]) => key)).size === found.length;
  if (!(kind === "tcp" || kind.startsWith("/")) || !isKnown || !isOnce)
    throw invalid(
      field,
      `"${printable(text)}" is not a check`,
      "Write tcp or /PATH, then ,port= ,interval= ,timeout= ,rise= and ,fall=, such as /healthz,interval=5,fall=2",
    );
  const values = found.map(([key, value]) => [checkKeys[key as keyof typeof checkKeys], value]);
  return { path: kind === "tcp" ? "" : kind, ...Object.fromEntries(values) };
}

/** Longest text that can mean anything: a pod's name, a port and a weight. */
const longest = 80;

/** Reads `PORT[:TARGET][/PROTOCOL]`. Throws `INVALID_ARGUMENT`. */
export function parseServicePort(text: string, field = "ports"): ServicePortText {
  const match =
    text.length > longest ? null : /^([0-9]{1,5})(?::([0-9]{1,5}))?(?:\/([a-z]{1,8}))?$/.exec(text);
  if (match === null)
    throw invalid(
      field,
      `"${printable(text)}" is not a port of a service`,
      "Write PORT[:TARGET][/tcp|udp|sctp], such as 80, 80:8080 or 53/udp",
    );
  const [, port = "", target = "0", protocol = ""] = match;
  return { port: Number(port), targetPort: Number(target), protocol };
}

/** Reads `POD` or `ADDRESS`, with `:PORT` and `=WEIGHT`. Throws `INVALID_ARGUMENT`. */
export function parseBackend(text: string, field = "backends"): BackendText {
  const wrong = invalid(
    field,
    `"${printable(text)}" is not a backend`,
    "Write POD or ADDRESS, then :PORT and =WEIGHT, such as web, web:8080=2, 192.0.2.9:80 or [2001:db8::9]:80",
  );
  const [, place = "", weight] =
    (text.length > longest ? null : /^([^=]+)(?:=([0-9]{1,5}))?$/.exec(text)) ?? [];
  const rest = weight === undefined ? {} : { weight: Number(weight) };
  if (isIp(place)) return { pod: "", address: place, port: 0, ...rest };
  const [, who = "", port = "0"] = /^(\[[^\]]*\]|[^:[\]]+)(?::([0-9]{1,5}))?$/.exec(place) ?? [];
  const address = who.startsWith("[") ? who.slice(1, -1) : who;
  if (isIp(address)) return { pod: "", address, port: Number(port), ...rest };
  if (who === "" || who.startsWith("[")) throw wrong;
  return { pod: who, address: "", port: Number(port), ...rest };
}
