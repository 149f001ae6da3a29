import test, { type ExecutionContext } from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { nftablesGeneration } from "../../linux/nftables/nftables-generation.ts";
import type { Decisions } from "../../policy/compile.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { onlyLook } from "../../network/bridge/inspect.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { BackendDesired, ServiceDesired } from "../../network/model/service.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  blueNetwork,
  bridgeNf,
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;
const nftables = { firewall: "nftables", iptables: "auto" } as const;
const virtual = { 4: "10.96.0.10", 6: "fd00:96::10" } as const;

/** Pod number `n`, in both families, at the port that says which one it is. */
const backend = (n: number, more: Partial<BackendDesired> = {}): BackendDesired[] =>
  families.map((family) => ({
    address: podAddress(n, family) as Ip,
    port: 8000 + n,
    weight: 1,
    ...more,
  }));

const service = (
  backends: readonly BackendDesired[],
  more: Partial<ServiceDesired> = {},
  protocol: "tcp" | "udp" | "sctp" = "tcp",
): ServiceDesired => ({
  name: "web",
  network: "default",
  bridge: "hyper0" as IfName,
  subnets: ["192.168.123.0/24" as Cidr, "fd00:123::/64" as Cidr],
  addresses: families.map((family) => virtual[family] as Ip),
  ports: [{ number: 1, protocol, port: 80, backends }],
  ...more,
});

interface Stage extends AsyncDisposable {
  readonly site: FirewallSite;
  readonly policies: Map<string, Decisions>;
  serve(...services: readonly ServiceDesired[]): Promise<string[]>;
}

/** Pods 2, 3 and 4, of which the last two serve at ports 8003 and 8004. */
async function openStage(options: (typeof driversUnderTest)[number]["options"]): Promise<Stage> {
  const policies = new Map<string, Decisions>();
  const site = await FirewallSite.open(options, { policies });
  bridgeNf("0");
  // What this host sends needs a route, whatever its address becomes.
  await site.inside("host", "ip", "route", "add", "default", "via", outsideAddress[4]);
  await site.inside("host", "ip", "-6", "route", "add", "default", "via", outsideAddress[6]);
  await site.ensure(dualNetwork());
  const pods = [2, 3, 4].map((n) => dualPod(n));
  for (const [i, pod] of pods.entries()) {
    await site.pod(2 + i);
    await site.ensure(pod);
  }
  for (const protocol of ["tcp", "udp"] as const)
    for (const n of [3, 4]) await site.serve(`pod${n}`, protocol, 8000 + n);
  return {
    site,
    policies,
    serve: async (...services) =>
      changesText(
        await site.host.apply({ kind: "services", now: () => services, pods: () => pods }, signal),
      ),
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

interface Asking {
  readonly family?: 4 | 6;
  readonly count?: number;
  readonly protocol?: "tcp" | "udp";
}

/** How often each port was reached by that many connections; others by what was said. */
async function reached(
  site: FirewallSite,
  from: string,
  { family = 4, count = 30, protocol = "tcp" }: Asking = {},
): Promise<Record<string, number>> {
  const found: Record<string, number> = {};
  for (let i = 0; i < count; i++) {
    const said = await site.ask(from, protocol, virtual[family], 80);
    // (Each silence costs three seconds, and there is none to be.)
    if (said === "silence") return { silence: 1 };
    const who = said.split(" ").at(-1) ?? "";
    found[who] = (found[who] ?? 0) + 1;
  }
  return found;
}

/** Of thirty connections, both backends have some: all go to one of them once in 2^29 runs. */
function both(t: ExecutionContext, found: Record<string, number>, what: string): void {
  t.deepEqual(Object.keys(found).toSorted(), ["8003", "8004"], what);
}

for (const { name, options } of driversUnderTest)
  test.serial(`connections to a service go to all of its pods (${name})`, async (t) => {
    await using stage = await openStage(options);
    const { site, serve } = stage;
    await serve(service([...backend(3), ...backend(4)]));
    for (const family of families) {
      both(t, await reached(site, "pod2", { family }), `a pod, IPv${family}`);
      both(t, await reached(site, "host", { family }), `this host, IPv${family}`);
      both(t, await reached(site, "pod3", { family }), `one of its own pods, IPv${family}`);
    }
    // Not from outside, although it has a route here.
    t.is(await site.ask("outside", "tcp", virtual[4], 80), "refused");
    t.is(await site.ask("pod2", "tcp", virtual[4], 81), "refused", "no such port");
    // Only a backend on the client's own network sees the host in its place.
    const seen = await site.ask("pod2", "tcp", virtual[4], 80);
    t.true(seen.startsWith(`${hostAddresses[4].gateway} `), seen);

    await serve(service([...backend(3), ...backend(4)], {}, "udp"));
    both(t, await reached(site, "pod2", { protocol: "udp" }), "UDP");
    t.is(await site.ask("pod2", "tcp", virtual[4], 80), "refused", "TCP is no port of it any more");

    await serve(service([]));
    t.is(await site.ask("pod2", "tcp", virtual[4], 80), "refused", "no backend");
    t.is(await site.ask("host", "tcp", virtual[4], 80), "refused", "no backend, this host");

    await serve();
    t.false((await run(["nft", "list", "tables"])).stdout.includes("podnet_services"));
  });

for (const { name, options } of driversUnderTest)
  test.serial(
    `a pod reaches itself by a service, also where frames pass the rules (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site, serve } = stage;
      const reflects = async (n: number): Promise<boolean> =>
        (await run(["bridge", "-d", "link", "show", "dev", `tap${n}`])).stdout.includes(
          "hairpin on",
        );
      for (const setting of ["0", "1"] as const) {
        bridgeNf(setting);
        await serve(service(backend(3)));
        for (const family of families)
          t.deepEqual(await reached(site, "pod3", { family, count: 3 }), { 8003: 3 }, setting);
        t.is(await reflects(3), setting === "1");
        t.deepEqual(await serve(service(backend(3))), [], "nothing to do");
        // A look at the pod itself keeps it so.
        t.deepEqual(await site.host.diff(dualPod(3), signal), []);
        await serve(service([...backend(3, { weight: 0 }), ...backend(4)]));
        t.is(await reflects(3), false, "it gets no new connections");
        t.is(await reflects(4), setting === "1");
        await serve();
        t.is(await reflects(4), false);
      }
      // A start leaves ports as they are until it knows the services.
      await serve(service(backend(3)));
      const again = FirewallSite.again(site, options);
      t.deepEqual(await again.diff(dualPod(3), signal), []);
      const pods = (): PluggedFragment[] => [dualPod(2), dualPod(3), dualPod(4)];
      await again.apply({ kind: "services", now: () => [service(backend(4))], pods }, signal);
      t.deepEqual([await reflects(3), await reflects(4)], [false, true]);
      await again[Symbol.asyncDispose]();
    },
  );

test.serial("a backend that goes keeps its connections, and gets no new ones", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  await serve(service(backend(3), {}, "udp"));
  const first = await site.talk("pod2", virtual[4], 80);
  t.truthy(first);
  await serve(service(backend(4), {}, "udp"));
  const heard = await site.heard("pod3", 8003);
  t.not(heard, "nothing", "the flow that there was");
  t.deepEqual(await reached(site, "pod3", { count: 5, protocol: "udp" }), { "8004": 5 });
});

test.serial("a flow that began before its service is led to a backend, too", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  t.notRegex(await site.talk("pod2", virtual[4], 80), / 8003$/, "before");
  await serve(service(backend(3), {}, "udp"));
  t.regex(await site.heard("pod2", 80), / 8003$/);
});

test.serial("an element of another program in the way is named with its table", async (t) => {
  await using stage = await openStage(nftables);
  const { serve } = stage;
  await serve(service(backend(3)));
  const element = `"hyper0" . 6 . 10.96.0.11 . 80`;
  const foreign = `add element inet podnet_services services4 { ${element} : accept }\n`;
  await run(["nft", "-f", "-"], { stdin: foreign });
  const second = service(backend(4), {
    name: "db",
    addresses: ["10.96.0.11" as Ip],
    ports: [{ number: 2, protocol: "tcp", port: 80, backends: backend(4) }],
  });
  const thrown = await t.throwsAsync(serve(service(backend(3)), second));
  if (!isPodnetError(thrown, "PORT_IN_USE")) throw new Error("Another error", { cause: thrown });
  t.regex(thrown.message, /^Port 10\.96\.0\.11 port 80\/tcp is translated .* another program$/);
  t.true(
    thrown.hint?.endsWith(`nft delete element inet podnet_services services4 '{ ${element} }'`),
  );
});

test.serial("with affinity all connections of a client go to one backend", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  const all = [...backend(3), ...backend(4)];
  await serve(service(all, { sticky: true }));
  for (const family of families) {
    const found: string[] = [];
    for (const from of ["pod2", "pod3", "pod4", "host"]) {
      const [who = "", ...more] = Object.keys(await reached(site, from, { family, count: 8 }));
      t.deepEqual(more, [], `${from}, IPv${family}`);
      t.regex(who, /^800[34]$/);
      found.push(who);
    }
    // A change that leaves the backends as they are moves no client.
    await serve(
      service(all, { sticky: true }),
      service([], { name: "db", addresses: [], ports: [] }),
    );
    t.is(Object.keys(await reached(site, "pod2", { family, count: 2 })).join(), found[0] ?? "none");
  }
  await serve(service(backend(4), { sticky: true }));
  t.deepEqual(await reached(site, "pod2", { count: 4 }), { "8004": 4 });
});

test.serial("weights share connections out, and weight 0 gets none", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  await serve(service([...backend(3, { weight: 30 }), ...backend(4, { weight: 10 })]));
  const slots = (await run(["nft", "list", "map", "inet", "podnet_services", "tcp4"])).stdout;
  t.is(slots.match(/ : /g)?.length, 4 + 1, "three slots and one, and the types");
  const found = await reached(site, "pod2", { count: 80 });
  // 60 are expected of the first; fewer than 41 of it come once in a million runs.
  t.true((found["8003"] ?? 0) > 40, JSON.stringify(found));
  await serve(service([...backend(3, { weight: 0 }), ...backend(4)]));
  t.deepEqual(await reached(site, "pod2", { count: 10 }), { "8004": 10 });
});

test.serial("policies decide by the backend's address, as isolation does", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve, policies } = stage;
  await site.ensure(blueNetwork());
  await site.bluePod();
  await serve(service([...backend(3), ...backend(4)]));
  t.is(await site.ask("blue", "tcp", virtual[4], 80), "refused", "another network's pod");
  const only4 = decisions({
    default: "deny",
    rules: [{ name: "four", action: "allow", cidrs: [podAddress(4, 4)], ports: [8004] }],
  });
  policies.set(dualPod(2).key, only4);
  const all = [2, 3, 4].map((n) => dualPod(n));
  await site.host.apply({ kind: "policies", now: () => all }, signal);
  // (The kernel does not translate the refusal of a connection that it has not remembered yet: it
  // comes from an address that the client has not asked.)
  const only = async (n: number, from: string): Promise<string> => {
    await serve(service(backend(n)));
    return site.askInVain(from, "tcp", virtual[4], 80);
  };
  t.is(await only(3, "pod2"), "silence");
  t.regex(await only(4, "pod2"), / 8004$/);
  // And what is let in: by the client's own address.
  const ingress = {
    default: "deny",
    rules: [{ name: "two", action: "allow", cidrs: [podAddress(2, 4)] }],
  };
  policies.clear();
  policies.set(dualPod(3).key, decisions({ ingress }));
  await site.host.apply({ kind: "policies", now: () => all }, signal);
  t.is(await only(3, "pod4"), "silence");
  t.regex(await only(3, "pod2"), / 8003$/, "the client that is let in");
});

test.serial("a backend outside is reached by the host's address", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  await site.serve("outside", "tcp", 5432);
  const outside = { address: outsideAddress[4] as Ip, port: 5432, weight: 1 };
  await serve(service([outside]));
  t.is(await site.ask("pod2", "tcp", virtual[4], 80), `${hostAddresses[4].outer} 5432`);
  t.is(await site.ask("host", "tcp", virtual[4], 80), `${hostAddresses[4].outer} 5432`);
});

test.serial("a change costs one transaction of the same length, whatever there is", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  const many = (count: number): BackendDesired[] =>
    Array.from({ length: count }, (_, i) => ({
      address: `192.168.123.${100 + (i % 100)}` as Ip,
      port: 9000 + i,
      weight: 1,
    }));
  await serve(service(many(2)));
  const few = await serve(service(many(3)));
  await serve(service(many(999)));
  const before = nftablesGeneration() ?? 0;
  const lots = await serve(service(many(1000)));
  t.is(nftablesGeneration(), before + 1);
  t.is(lots.length, few.length);
  t.deepEqual(await serve(service(many(1000))), [], "nothing to do");
  // A start finds all as it is, and takes what has no row.
  await using again = FirewallSite.again(site, nftables);
  const all = [service(many(1000))];
  t.deepEqual(await again.apply({ kind: "services", now: () => all, pods: () => [] }, signal), []);
  await again.apply({ kind: "services", now: () => [], pods: () => [] }, signal);
  t.false((await run(["nft", "list", "tables"])).stdout.includes("podnet_services"));
});

test.serial("what another program changes of a service is found and put back", async (t) => {
  await using stage = await openStage(nftables);
  const { site, serve } = stage;
  const wanted = [service([...backend(3), ...backend(4)])];
  await serve(...wanted);
  const look = (heal: () => boolean) => site.host.inspectServices(() => wanted, heal, signal);
  t.deepEqual((await look(onlyLook)).found, []);
  const { stdout } = await run(["nft", "list", "chains", "inet"]);
  const [chain = ""] = /service_\w+/.exec(stdout) ?? [];
  for (const command of [
    `delete element inet podnet_services tcp4 { 0x40000 }`,
    `flush chain inet podnet_services ${chain}`,
    `flush chain inet podnet_services prerouting`,
    `flush map inet podnet_services services4`,
    `delete table inet podnet_services`,
  ]) {
    await run(["nft", ...command.split(" ")]);
    t.true((await look(onlyLook)).found.length > 0, command);
    t.true((await look(() => true)).healed, command);
    t.deepEqual((await look(onlyLook)).found, [], command);
    both(t, await reached(site, "pod2"), command);
  }
});

test.serial("a service of SCTP has the rules of one", async (t) => {
  await using stage = await openStage(nftables);
  await stage.serve(service(backend(3), {}, "sctp"));
  const { stdout } = await run(["nft", "list", "table", "inet", "podnet_services"]);
  t.regex(stdout, /"hyper0" . sctp . 10\.96\.0\.10 . 80 .*jump service_/);
  t.regex(stdout, /meta l4proto sctp dnat ip to numgen random mod 1 offset 262144 map @sctp4/);
  await stage.site
    .sctp("pod2", "pod3", [virtual[4], 80])
    .then((said) =>
      t.regex(said, new RegExp(`${hostAddresses[4].gateway.replaceAll(".", "\\.")}.* 8003`)),
    );
});
