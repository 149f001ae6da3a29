import {
  create,
  type JsonObject,
  type JsonValue,
  type MessageInitShape,
  toJson,
} from "@bufbuild/protobuf";
import { InterfaceState, type Pod, type PodInterface } from "../../../api/gen/podnet/v1/pod_pb.ts";
import type { UpdateInterfaceRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  type Interface,
  InterfaceSchema,
  type PodSpec,
  RateLimitsSchema,
} from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { changedLimits, limitsView, validateLimits } from "../../../core/rate-limits.ts";
import { differences, isSame } from "./differences.ts";
import type { Change, Item, Step } from "./item.ts";

interface InterfaceChanges extends Pick<Item, "changes" | "steps"> {
  /** The plans of those steps that published ports may be in the way of. */
  readonly probes: readonly Step[];
}

type Update = MessageInitShape<typeof UpdateInterfaceRequestSchema>;

/** An interface as its document names it, and as the pod has it. */
interface Pair {
  readonly name: string;
  readonly named: JsonObject;
  readonly wanted: Interface;
  readonly is: PodInterface;
  /** As it was asked for. */
  readonly asked: Interface;
}

/**
 * What makes a pod's interfaces those that its document names. One is found by its name in the
 * guest; without a name the first is eth0, the second eth1.
 */
export function interfaceChanges(
  { named, spec }: { readonly named: JsonObject; readonly spec: PodSpec },
  pod: Pod,
): InterfaceChanges {
  // No interface means one automatic interface: the pod has one.
  if (spec.interfaces.length === 0) return { changes: [], steps: [], probes: [] };
  const idOrName = pod.id;
  const there = pod.interfaces
    .map((is, i) => ({ is, asked: pod.spec?.interfaces[i] ?? create(InterfaceSchema) }))
    .filter(({ is }) => is.state !== InterfaceState.UNPLUG_PENDING);
  const wanted = spec.interfaces.map((each, i) => ({
    wanted: each,
    named: objectOf((named["interfaces"] as JsonValue[])[i]),
    name: each.guestName || (each.loopback ? "lo" : `eth${i}`),
  }));
  const removed = there.filter(({ is }) => wanted.every(({ name }) => name !== is.guestName));
  const added = wanted.filter(({ name }) => there.every(({ is }) => is.guestName !== name));
  const kept = wanted.flatMap((each) => {
    const found = there.find(({ is }) => is.guestName === each.name);
    return found === undefined ? [] : [{ ...each, ...found }];
  });
  const parts = kept.map((pair) => changesOf(pair, idOrName));
  const removals = removed.map(({ is: { guestName } }) => ({ idOrName, guestName }));
  const updates = parts.flatMap(({ update }) => update ?? []);
  return {
    probes: [
      ...removals.map(
        (request): Step =>
          ({ pods }, signal) =>
            pods.removeInterface({ ...request, planOnly: true }, { signal }),
      ),
      ...updates.map(
        (request): Step =>
          ({ pods }, signal) =>
            pods.updateInterface({ ...request, planOnly: true }, { signal }),
      ),
    ],
    changes: [
      ...removed.map(({ is }) => ({
        field: `interfaces.${is.guestName}`,
        was: is.addresses.join(" ") || "no address",
        becomes: "",
      })),
      ...parts.flatMap(({ changes }) => changes),
      ...added.map(({ name, named: own }) => ({
        field: `interfaces.${name}`,
        was: "",
        becomes: JSON.stringify(own),
      })),
    ],
    steps: [
      ...removals.map(
        (request): Step =>
          ({ pods }, signal) =>
            pods.removeInterface(request, { signal }),
      ),
      ...parts.flatMap(({ steps }) => steps),
      ...added.map(
        ({ wanted: each, name }): Step =>
          ({ pods }, signal) =>
            pods.addInterface({ idOrName, interface: { ...each, guestName: name } }, { signal }),
      ),
    ],
  };
}

const objectOf = (value: JsonValue | undefined): JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};

function changesOf(
  pair: Pair,
  idOrName: string,
): Pick<Item, "changes" | "steps"> & { readonly update?: Update } {
  const { name, named, wanted, is, asked } = pair;
  const { guestName } = is;
  const update: Update = {};
  const found = differences(InterfaceSchema, named, json(wanted), json(foundOf(pair)));
  const steps: Step[] = [];
  const changes = found.map((change): Change => {
    const { field } = change;
    const at = { ...change, field: `interfaces.${name}.${field}` };
    if (field === "address" || field === "addresses") {
      update.addresses = { addresses: addressesOf(wanted) };
      return { ...at, was: is.addresses.join(" ") };
    }
    if (field === "mtu" && wanted.mtu !== undefined) update.mtu = wanted.mtu;
    else if (field === "gateway") update.gateway = wanted.gateway;
    else if (field === "metric") update.metric = wanted.metric;
    else if (field.startsWith("port.limits")) {
      if (steps.length === 0) steps.push(limitStep(idOrName, guestName, wanted, asked));
    } else return { ...at, refused: refusal(idOrName, guestName) };
    return at;
  });
  if (Object.keys(update).length === 0) return { changes, steps };
  const request = { ...update, idOrName, guestName };
  const set: Step = ({ pods }, signal) => pods.updateInterface(request, { signal });
  return { changes, steps: [set, ...steps], update: request };
}

const refusal = (idOrName: string, guestName: string): string =>
  `it is fixed for an interface's life: podnet interface remove ${idOrName} ${guestName}, then apply again`;

const limitStep =
  (idOrName: string, guestName: string, wanted: Interface, asked: Interface): Step =>
  ({ pods }, signal) => {
    const limits = { ...asked.port?.limits, ...wanted.port?.limits };
    return pods.limit({ idOrName, guestName, limits }, { signal });
  };

const json = (each: Interface): JsonObject =>
  toJson(InterfaceSchema, each, { alwaysEmitImplicit: true }) as JsonObject;

/**
 * The interface as the pod has it, written as its document writes it: an address without a length
 * where that has none, limits in the units of that.
 */
function foundOf({ wanted, is, asked }: Pair): Interface {
  const addresses = addressesOf(wanted);
  const same = addresses.length === is.addresses.length && addresses.every((each) => has(is, each));
  const gateways = is.gateway.split(" ");
  return {
    ...asked,
    guestName: wanted.guestName,
    network: wanted.network === "" ? "" : is.network,
    address: same ? wanted.address : is.addresses.join(" "),
    addresses: same ? wanted.addresses : is.addresses,
    mac: wanted.mac === "" ? "" : is.mac,
    ...(is.mtu === 0 ? {} : { mtu: is.mtu }),
    gateway: gateways.some((each) => isSame(each, wanted.gateway)) ? wanted.gateway : is.gateway,
    ...(asked.port === undefined ? {} : { port: { ...asked.port, ...limitsOf(wanted, asked) } }),
  };
}

/** The limits asked for, as the document writes them if it means the same ones. */
function limitsOf(
  wanted: Interface,
  asked: Interface,
): Pick<NonNullable<Interface["port"]>, "limits"> | object {
  const limits = wanted.port?.limits;
  if (limits === undefined) return {};
  const usual = limitsView(changedLimits(undefined, validateLimits(limits, "limits")) ?? {});
  const whole = create(RateLimitsSchema, usual);
  const of = (each: typeof whole): JsonObject => toJson(RateLimitsSchema, each) as JsonObject;
  const is = asked.port?.limits ?? create(RateLimitsSchema);
  return isSame(of(whole), of(is)) ? { limits } : {};
}

/** Addresses that a document names; none for an automatic one. */
const addressesOf = ({ address, addresses }: Interface): string[] =>
  address === "" ? [...addresses] : address === "none" ? [] : [address];

const has = ({ addresses }: PodInterface, wanted: string): boolean =>
  addresses.some((each) =>
    isSame(wanted.includes("/") ? each : each.replace(/\/\d+$/, ""), wanted),
  );
