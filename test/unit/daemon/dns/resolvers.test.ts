import test from "ava";
import { type DecodedPacket, decode, encode } from "dns-packet";
import type { Ip } from "../../../../core/address.ts";
import type { PodId } from "../../../../core/names.ts";
import type { Resolver } from "../../../../daemon/dns/resolver.ts";
import { type KnownNames, Resolvers } from "../../../../daemon/dns/resolvers.ts";
import { leaseTimes } from "../../../../daemon/dhcp/lease.ts";
import type { NetworkDefinition } from "../../../../daemon/config/network-definition.ts";
import { openLog } from "../../../../linux/log.ts";
import { definition } from "../../../lab/network-definition.ts";

const blue = definition("blue", ["10.20.0.1/24"]);
const red = definition("red", ["10.30.0.1/24"]);
const grey = definition("grey", ["10.40.0.1/24"], { resolver: false });

/**
 * Resolvers of these networks, by the bridge where they would listen; `asker` has .2 of each,
 * `other` .3.
 */
function resolvers() {
  const clock = { ms: 0 };
  const known = { reported: false, clients: false };
  const open = new Map<string, Resolver>();
  const holder = (ip: Ip): PodId | undefined => {
    if (ip.endsWith(".2")) return "askeraskeras" as PodId;
    return ip.endsWith(".3") ? ("otherotherot" as PodId) : undefined;
  };
  const names: KnownNames = {
    addressesOf: (network, pod) =>
      pod === "other"
        ? [blue, red, grey].flatMap(({ name, subnets }) =>
            name === network ? [subnets[0]?.gateway.replace(".1/24", ".3") as Ip] : [],
          )
        : undefined,
    nameAt: (_network, ip) => (holder(ip) === undefined ? undefined : "other"),
    holderAt: (_network, ip) => holder(ip),
    networksOf: () => [red.name, blue.name, grey.name],
    isSent: () => known.reported,
    hasClients: () => known.clients,
  };
  const all = new Resolvers({
    config: { resolver: true, domain: "podnet", upstreams: [], staleMs: 0 },
    names,
    clock: { now: () => 0, monotonic: () => clock.ms },
    journal: { emit: () => {} },
    log: openLog({ component: "test", level: "silent" }),
    listen: async ({ link }, resolver) => {
      open.set(link, resolver);
      return { isThere: () => true, close: () => open.delete(link) };
    },
  });
  const converge = (...networks: readonly NetworkDefinition[]) => all.converge(() => networks);
  return { all, clock, known, open, converge };
}

async function found(resolver: Resolver | undefined, from: string): Promise<unknown[]> {
  const query = encode({ type: "query", id: 1, questions: [{ name: "other", type: "A" }] });
  const answer = await resolver?.answer(query, from, "udp");
  const { answers = [] }: DecodedPacket = decode(Buffer.from(answer ?? []));
  return answers.flatMap((each) => (each.type === "A" ? [each.data] : []));
}

test("at each gateway all networks of the asker are known, its own first, without those that have no resolver", async (t) => {
  const { open, converge } = resolvers();
  await converge(blue, red, grey);
  t.deepEqual([...open.keys()], ["pn-blue", "pn-red"]);
  t.deepEqual(await found(open.get("pn-blue"), "10.20.0.2"), ["10.20.0.3", "10.30.0.3"]);
  t.deepEqual(await found(open.get("pn-red"), "10.30.0.2"), ["10.30.0.3", "10.20.0.3"]);
  await converge(blue, { ...red, resolver: false }, { ...grey, resolver: true });
  t.deepEqual(await found(open.get("pn-blue"), "10.20.0.2"), ["10.20.0.3", "10.40.0.3"]);
});

test("a resolver that is not to be any more is there for whoever was notified of it, and for leases that name it", async (t) => {
  const { clock, known, open, converge } = resolvers();
  const off = { ...blue, resolver: false };
  const isOpen = async (...networks: readonly NetworkDefinition[]): Promise<boolean> => {
    await converge(...networks);
    return open.has("pn-blue");
  };
  t.true(await isOpen(blue));
  known.reported = true;
  t.true(await isOpen(off), "guests are notified of it");
  known.reported = false;
  t.false(await isOpen(off), "and now none is");
  t.false(await isOpen(off));
  t.true(await isOpen(blue));
  known.clients = true;
  clock.ms += 1000;
  t.true(await isOpen(off), "some hear of it when they ask next");
  clock.ms += (leaseTimes.renew - 2) * 1000;
  t.true(await isOpen(off));
  clock.ms += 2000;
  t.false(await isOpen(off), "all have asked since");
});
