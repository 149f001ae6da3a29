import { isIp, parseIp } from "../../core/address.ts";
import type { FromRelay, RelayVerdict } from "../../relay/messages.ts";
import { canonicalName } from "../../policy/domain.ts";

type Json = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === "string";
const isCount = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value > 0;

/**
 * Parses a line that the relay reports; undefined when it is none. The relay reads hostile bytes
 * and may say anything: only what it may say is taken.
 */
export function parseFromRelay(line: string): FromRelay | undefined {
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (!isObject(message)) return undefined;
  const { type, seq } = message;
  if (type === "done") return isCount(seq) ? { type, seq } : undefined;
  const verdict = isObject(message["verdict"]) ? verdictOf(message["verdict"]) : undefined;
  return type === "verdict" && verdict !== undefined ? { type, verdict } : undefined;
}

function verdictOf({ pod, verdict, policy, rule, reason, name, to, count }: Json) {
  const known = isText(name) ? canonicalName(name) : null;
  const place = isObject(to) ? placeOf(to) : undefined;
  if (verdict !== "allow" && verdict !== "deny") return undefined;
  if (!isText(pod) || !isText(policy) || !isText(rule) || !isText(reason)) return undefined;
  if (known === undefined || !isCount(count)) return undefined;
  const found: RelayVerdict = { pod, verdict, policy, rule, reason, name: known, count };
  return place === undefined ? found : { ...found, to: place };
}

const placeOf = ({ ip, port }: Json): RelayVerdict["to"] =>
  isText(ip) && isIp(ip) && isCount(port) && port <= 65_535 ? { ip: parseIp(ip), port } : undefined;
