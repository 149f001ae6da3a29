import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { printable } from "../../core/names.ts";
import { nearest } from "../../core/nearest.ts";
import { usage } from "../usage.ts";
import { addressesOf, networksOf, stateName } from "./pod-view.ts";

/** What `--filter KEY=VALUE` compares: the values that a pod has under a key. */
const filters: Readonly<Record<string, (pod: Pod) => readonly string[]>> = {
  state: (pod) => [stateName(pod.state)],
  name: (pod) => [pod.name],
  id: (pod) => [pod.id],
  network: networksOf,
  address: (pod) => addressesOf(pod).flatMap((each) => [each, each.replace(/\/\d+$/, "")]),
  label: ({ labels }) => Object.entries(labels).flatMap(([key, value]) => [key, `${key}=${value}`]),
};

/** What `--sort KEY` compares. Texts compare by code units, as `sort` does with LC_ALL=C. */
const orders: Readonly<Record<string, (pod: Pod) => string | number>> = {
  name: (pod) => pod.name,
  created: (pod) => (pod.createdAt === undefined ? 0 : timestampMs(pod.createdAt)),
  state: (pod) => stateName(pod.state),
  network: (pod) => networksOf(pod).join(","),
  memory: (pod) => pod.vm?.memoryMib ?? pod.spec?.resources?.memoryMib ?? 0,
};

/** Whether a value is as a pattern says, in which `*` stands for any text. */
function matches(value: string, pattern: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  if (!value.startsWith(first)) return false;
  if (rest.length === 0) return value === pattern;
  let at = first.length;
  const last = rest.pop() ?? "";
  for (const part of rest) {
    const found = value.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return value.length - last.length >= at && value.endsWith(last);
}

/**
 * The pods that all of `--filter KEY=VALUE,KEY=VALUE` let through: several values of one key are
 * alternatives, but labels are all wanted. Throws `INVALID_ARGUMENT` for another key.
 */
export function filterPods(pods: readonly Pod[], texts: readonly string[]): readonly Pod[] {
  const wanted = texts.flatMap((text) => text.split(",")).map(parseFilter);
  const byKey = Map.groupBy(wanted, ({ key, value }) => (key === "label" ? value : key));
  return pods.filter((pod) =>
    [...byKey.values()].every((alternatives) =>
      alternatives.some(({ key, value }) => filters[key]?.(pod).some((has) => matches(has, value))),
    ),
  );
}

function parseFilter(text: string): { readonly key: string; readonly value: string } {
  const equals = text.indexOf("=");
  const key = equals < 0 ? text : text.slice(0, equals);
  if (!Object.hasOwn(filters, key)) throw unknownKey("--filter", key, Object.keys(filters));
  const value = equals < 0 ? "" : text.slice(equals + 1);
  if (value === "")
    throw usage(`--filter "${printable(text)}" has no value`, "Write KEY=VALUE; * is any text");
  const states = Object.keys(PodState).filter((name) => Number.isNaN(Number(name)));
  const known = states.map((name) => name.toLowerCase()).filter((name) => name !== "unspecified");
  if (key === "state" && !known.some((name) => matches(name, value)))
    throw unknownKey("--filter state", value, known);
  return { key, value };
}

/** The pods in the order of `--sort KEY`; `-KEY` is the other way round. */
export function sortPods(pods: readonly Pod[], text: string): readonly Pod[] {
  const [, minus = "", key = ""] = /^(-?)(.*)$/s.exec(text) ?? [];
  if (key === "age")
    throw usage('--sort "age" is not known', "Write created, oldest first, or -created");
  if (!Object.hasOwn(orders, key)) throw unknownKey("--sort", key, Object.keys(orders));
  const order = orders[key] as (pod: Pod) => string | number;
  const sign = minus === "" ? 1 : -1;
  return pods.toSorted((a, b) => {
    const [left, right] = [order(a), order(b)];
    return left === right ? 0 : left < right ? -sign : sign;
  });
}

function unknownKey(flag: string, key: string, known: readonly string[]): Error {
  const meant = nearest(key, known);
  return usage(
    `${flag} "${printable(key)}" is not known`,
    `${meant === undefined ? "" : `Did you mean ${meant}? `}There are ${known.join(", ")}`,
  );
}
