import { isIP } from "node:net";
import { maxPorts } from "../../api/validate/ports.ts";

/**
 * Checks one part of a stored plan. Answers what is wrong, beginning with the place in the plan;
 * undefined where the part is as podnetd writes it. The place is put together only for a wrong
 * part: a list of a thousand plans is checked at once.
 */
export type Check = (value: unknown) => string | undefined;

const is = (what: string, holds: (value: unknown) => boolean): Check => {
  const wrong = ` is no ${what}`;
  return (value) => (holds(value) ? undefined : wrong);
};

export const text = is("text", (value) => typeof value === "string");
export const whole = is("number", (value) => Number.isSafeInteger(value));
const within = (least: number, most: number) => (value: unknown) =>
  Number.isSafeInteger(value) && least <= (value as number) && (value as number) <= most;
/** A port's number, which is never 0. */
const portNumber = is("port", within(1, 65_535));
/** A number of ports one after the other. A larger one would be as many sockets. */
const portCount = is(`number of ports up to ${maxPorts}`, within(1, maxPorts));
/** A number that the kernel takes as 32 bits without a sign. */
export const u32 = is("number of 32 bits", within(0, 2 ** 32 - 1));
const protocol = is("protocol", (value) => value === "tcp" || value === "udp" || value === "sctp");
export const flag = is("truth value", (value) => typeof value === "boolean");
export const absolute = is("path", (value) => typeof value === "string" && value.startsWith("/"));
export const ip = is("address", (value) => typeof value === "string" && bits(value) > 0);
export const prefix = is(
  "address with a length",
  (value) => typeof value === "string" && isPrefix(value),
);

export const mac = is(
  "MAC address",
  (value) => typeof value === "string" && /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/.test(value),
);

/**
 * Bits of an address; 0 for an invalid one. Node's own check takes a tenth of the time of
 * `core/address`.
 */
const bits = (value: string): number =>
  value.includes("%") ? 0 : ({ 4: 32, 6: 128 }[isIP(value)] ?? 0);

function isPrefix(value: string): boolean {
  const slash = value.indexOf("/");
  const length = value.slice(slash + 1);
  const most = slash < 0 ? 0 : bits(value.slice(0, slash));
  return most > 0 && /^\d{1,3}$/.test(length) && Number(length) <= most;
}

export const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined ? undefined : check(value);

export const list =
  (check: Check): Check =>
  (value) => {
    if (!Array.isArray(value)) return " is no list";
    for (let i = 0; i < value.length; i++) {
      const wrong = check(value[i]);
      if (wrong !== undefined) return `[${i}]${wrong}`;
    }
    return undefined;
  };

/** Texts by any names. */
export const texts: Check = (value) => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return " is no object";
  const wrong = Object.values(value).some((each) => typeof each !== "string");
  return wrong ? " has something else than text" : undefined;
};

export const fields = (checks: Readonly<Record<string, Check>>): Check => {
  const all = Object.entries(checks);
  return (value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return " is no object";
    for (const [name, check] of all) {
      const wrong = check((value as Record<string, unknown>)[name]);
      if (wrong !== undefined) return `.${name}${wrong}`;
    }
    return undefined;
  };
};

export const record = fields({});

/** A rule for what is published, as the host is to have it. */
export const reachedAt = fields({
  protocol,
  hostIp: optional(ip),
  hostPort: portNumber,
  podIp: ip,
  podPort: portNumber,
  count: portCount,
  bridge: text,
});

/** A loopback port that leads to another one. */
export const redirect = fields({
  protocol,
  hostIp: ip,
  hostPort: portNumber,
  toPort: portNumber,
});

/** Published ports of a plan. */
export const published = fields({
  protocol,
  hostPort: portNumber,
  podPort: portNumber,
  count: portCount,
  at: list(fields({ hostIp: ip, podIp: ip })),
});
