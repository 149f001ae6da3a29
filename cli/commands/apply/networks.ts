import { create, type JsonObject, toJson } from "@bufbuild/protobuf";
import type { Podnet } from "../../../api/client.ts";
import {
  type Network,
  type NetworkSpec,
  NetworkSpecSchema,
  type SubnetSpec,
  SubnetSpecSchema,
} from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { type IpPrefix, networkOf, parseIpPrefix } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { GivenFlags } from "../../flags/given.ts";
import { updatedSpec } from "../../flags/network-flags.ts";
import { withFreeSubnet } from "../../free-subnet.ts";
import { differences } from "./differences.ts";
import { type Change, changed, type Item, type Step } from "./item.ts";

/** What a network's document means. */
export async function planNetwork(
  podnet: Podnet,
  asked: { readonly named: JsonObject; readonly spec: NetworkSpec },
  signal: AbortSignal,
): Promise<Item> {
  const { named, spec } = ipv4First(asked);
  const network = await found(podnet, spec.name, signal);
  if (network === undefined) return planCreate(podnet, named, spec, signal);
  const before = await updatedSpec(network, {}, new GivenFlags());
  before.bridge = network.bridge;
  const after = merged(named, spec, before);
  const changes = differences(NetworkSpecSchema, named, json(after), json(before)).map((change) =>
    withRefusal(change, network),
  );
  if (changes.some(({ refused }) => refused !== undefined))
    return changed("network", spec.name, { changes, steps: [] });
  if (changes.length > 0) await podnet.networks.update({ spec: after, planOnly: true }, { signal });
  const update: Step = (client, at) => client.networks.update({ spec: after }, { signal: at });
  return changed("network", spec.name, { changes, steps: [update] });
}

/** With the subnets in the order in which podnetd keeps them. */
function ipv4First({ named, spec }: Parameters<typeof planNetwork>[1]) {
  const isIpv6 = (subnet: unknown): number =>
    Number(String((subnet as { cidr?: unknown } | null)?.cidr).includes(":"));
  const order = <Each>(subnets: readonly Each[]): Each[] =>
    subnets.toSorted((a, b) => isIpv6(a) - isIpv6(b));
  const { subnets } = named;
  return {
    named: Array.isArray(subnets) ? { ...named, subnets: order(subnets) } : named,
    spec: { ...spec, subnets: order(spec.subnets) },
  };
}

async function found(
  podnet: Podnet,
  name: string,
  signal: AbortSignal,
): Promise<Network | undefined> {
  try {
    return (await podnet.networks.get({ name }, { signal })).network;
  } catch (thrown) {
    if (isPodnetError(thrown, "NETWORK_NOT_FOUND")) return undefined;
    throw thrown;
  }
}

async function planCreate(
  podnet: Podnet,
  named: JsonObject,
  spec: NetworkSpec,
  signal: AbortSignal,
): Promise<Item> {
  const changes = differences(NetworkSpecSchema, named, json(spec), {}).filter(
    ({ field }) => field !== "name",
  );
  const item = { kind: "network", name: spec.name, action: "create" } as const;
  if (spec.subnets.length > 0) {
    await podnet.networks.create({ spec, planOnly: true }, { signal });
    const make: Step = (client, at) => client.networks.create({ spec }, { signal: at });
    return { ...item, changes, steps: [make] };
  }
  const free: Change = { field: "subnets", was: "", becomes: "one that is free on the host" };
  const make: Step = (client, at) =>
    withFreeSubnet(client, at, (cidr) =>
      client.networks.create(
        { spec: { ...spec, subnets: [create(SubnetSpecSchema, { cidr })] } },
        { signal: at },
      ),
    );
  return { ...item, changes: [...changes, free], steps: [make] };
}

const json = (spec: NetworkSpec): JsonObject =>
  toJson(NetworkSpecSchema, spec, { alwaysEmitImplicit: true }) as JsonObject;

/** What the network becomes: the fields that the document names, in the place of what they were. */
function merged(named: JsonObject, spec: NetworkSpec, before: NetworkSpec): NetworkSpec {
  const fields = NetworkSpecSchema.fields.filter(
    ({ name, jsonName }) => Object.hasOwn(named, name) || Object.hasOwn(named, jsonName),
  );
  const values = Object.fromEntries(
    fields.map(({ localName }) => [localName, spec[localName as keyof NetworkSpec]]),
  );
  const after = create(NetworkSpecSchema, { ...before, ...values });
  if (values["bridge"] === "") after.bridge = before.bridge;
  if (values["subnets"] !== undefined)
    after.subnets = spec.subnets.map((subnet) => subnetAfter(subnet, before.subnets));
  return after;
}

/** A subnet without host bits has the gateway that it had. */
function subnetAfter(subnet: SubnetSpec, before: readonly SubnetSpec[]): SubnetSpec {
  const prefix = parsed(subnet.cidr);
  if (prefix === undefined || networkOf(prefix) !== (prefix as string)) return subnet;
  const was = before.find(({ cidr }) => networkOf(cidr as IpPrefix) === (prefix as string));
  if (was === undefined) return subnet;
  return create(SubnetSpecSchema, { ...subnet, cidr: was.cidr });
}

function parsed(cidr: string): IpPrefix | undefined {
  try {
    return parseIpPrefix(cidr);
  } catch {
    // podnetd refuses it, and says why.
    return undefined;
  }
}

function withRefusal(change: Change, { name, default: isConfigured }: Network): Change {
  if (isConfigured)
    return { ...change, refused: "it is podnetd's own: change [network] of its configuration" };
  if (change.field !== "bridge") return change;
  return { ...change, refused: `a bridge stays: podnet network delete ${name}, then apply again` };
}
