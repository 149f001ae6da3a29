import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { BackendSpec, ServiceSpec } from "../../../../api/service-spec.ts";
import type { Cidr, Ip } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { NetworkName, ServiceName } from "../../../../core/names.ts";
import { Journal } from "../../../../daemon/events/journal.ts";
import { eventsOfKind } from "../../../../daemon/events/store.ts";
import { HealthJournal } from "../../../../daemon/services/health/health-journal.ts";
import { serviceMetrics } from "../../../../daemon/services/service-metrics.ts";
import { Services, type ServicesParts } from "../../../../daemon/services/services.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { openLog } from "../../../../linux/log.ts";
import { nothingFound } from "../../../../network/bridge/inspect.ts";
import type { ServiceDesired } from "../../../../network/model/service.ts";
import { definition } from "../../../lab/network-definition.ts";

const network = definition("green", ["10.20.0.1/24"]);

const at = (address: string): BackendSpec => ({ address: address as Ip, weight: 1 });
const spec = (name: string, ...backends: readonly string[]): ServiceSpec => ({
  name: name as ServiceName,
  network: "green" as NetworkName,
  addresses: [],
  ports: [{ protocol: "tcp", port: 80, target: 80 }],
  backends: backends.map(at),
});

/** Services with a real store, on a host that does what `apply` says. */
function open(t: ExecutionContext, overlap?: string, probe?: ServicesParts["probe"]) {
  const directory = mkdtempSync(join(tmpdir(), "podnet-services-"));
  const db = Database.openIn(directory);
  const journal = new Journal(db, systemClock);
  const host = {
    rules: [] as readonly ServiceDesired[],
    writes: 0,
    /** Called before the rules are written. */
    apply: (): Promise<void> => Promise.resolve(),
  };
  const services = new Services({
    db,
    journal,
    clock: systemClock,
    config: { serviceCidrs: ["10.73.0.0/16" as Cidr], disableIptables: false },
    holders: () => [],
    networks: { list: () => [network] },
    log: openLog({ component: "test", level: "silent" }),
    ...(probe && { probe }),
    network: {
      async apply(desired) {
        if (desired.kind !== "services") throw new Error(`Applied ${desired.kind}`);
        const rules = desired.now();
        await host.apply();
        host.rules = rules;
        host.writes++;
        return [];
      },
      inspectServices: async () => nothingFound,
      describeService: () => [],
      observe: {
        overlapsOf: async (subnets) =>
          overlap === undefined ? [] : subnets.map((subnet) => ({ subnet, with: overlap })),
      },
    },
  });
  t.teardown(async () => {
    await services[Symbol.asyncDispose]();
    db.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const backends = (name: string): readonly (string | undefined)[] =>
    services.get(name).backends.map(({ address }) => address);
  const events = () => eventsOfKind(db, "service").map(({ data }) => data.text);
  return { services, host, backends, events };
}

const refusal = new PodnetError("FIREWALL_FAILED", "The kernel has refused it", { hint: "None" });

test("a change that fails takes back itself, not what another call has changed since", async (t) => {
  const { services, host, backends } = open(t);
  await services.create(spec("web", "192.0.2.1"));
  const held = Promise.withResolvers<void>();
  host.apply = () => held.promise;
  const first = services.update(spec("web", "192.0.2.1", "192.0.2.2"));
  const second = services.update(spec("web", "192.0.2.1", "192.0.2.3"));
  first.catch(() => {});
  await new Promise((resolve) => setImmediate(resolve));
  host.apply = () => Promise.resolve();
  held.reject(refusal);
  await t.throwsAsync(first, { code: "FIREWALL_FAILED" });
  await second;
  t.deepEqual(backends("web"), ["192.0.2.1", "192.0.2.3"]);
  t.deepEqual(
    host.rules[0]?.ports[0]?.backends.map(({ address }) => address),
    ["192.0.2.1", "192.0.2.3"],
  );
});

test("a service whose rules the host refuses is as it was before the call", async (t) => {
  const { services, host, backends } = open(t);
  host.apply = () => Promise.reject(refusal);
  await t.throwsAsync(services.create(spec("web", "192.0.2.1")), { code: "FIREWALL_FAILED" });
  t.deepEqual(services.list(), []);
  host.apply = () => Promise.resolve();
  await services.create(spec("web", "192.0.2.1"));
  host.apply = () => Promise.reject(refusal);
  const update = services.update(spec("web", "192.0.2.2"));
  await t.throwsAsync(update, { code: "FIREWALL_FAILED" });
  t.deepEqual(backends("web"), ["192.0.2.1"]);
  host.apply = () => Promise.resolve();
});

test("a change that fails does not bring back a service that went meanwhile", async (t) => {
  const { services, host } = open(t);
  await services.create(spec("web", "192.0.2.1"));
  const held = Promise.withResolvers<void>();
  host.apply = () => held.promise;
  const update = services.update(spec("web", "192.0.2.2"));
  update.catch(() => {});
  await new Promise((resolve) => setImmediate(resolve));
  services.forget();
  held.reject(refusal);
  await t.throwsAsync(update, { code: "FIREWALL_FAILED" });
  t.deepEqual(services.list(), []);
});

test("services made side by side have addresses of their own", async (t) => {
  const { services } = open(t);
  const names = Array.from({ length: 8 }, (_, i) => `web${i}`);
  await Promise.all(names.map((name) => services.create(spec(name))));
  const addresses = services.list().flatMap((each) => each.addresses);
  t.is(new Set(addresses).size, names.length);
});

test("no service takes addresses that the host has or leads elsewhere", async (t) => {
  const { services } = open(t, 'route 10.0.0.0/8 by "eth0"');
  const thrown = await t.throwsAsync(services.create(spec("web")), { code: "NETWORK_OVERLAP" });
  t.regex(thrown.message, /overlaps with route 10\.0\.0\.0\/8 by "eth0"/);
  t.deepEqual(services.list(), []);
});

test("changes of single backends leave the others, whoever made them", async (t) => {
  const { services, backends } = open(t);
  await services.create(spec("web", "192.0.2.1", "192.0.2.2"));
  await Promise.all([
    services.changeBackends("web", { set: [at("192.0.2.3")], remove: [] }),
    services.changeBackends("web", { set: [at("192.0.2.4")], remove: ["192.0.2.1"] }),
  ]);
  t.deepEqual(backends("web"), ["192.0.2.2", "192.0.2.3", "192.0.2.4"]);
  await services.changeBackends("web", {
    set: [{ ...at("192.0.2.3"), weight: 0 }],
    remove: [],
  });
  t.deepEqual(
    services.get("web").backends.map(({ weight }) => weight),
    [1, 0, 1],
    "it stays where it is",
  );
  const { addresses } = services.get("web");
  for (const [change, message] of [
    [{ set: [], remove: ["192.0.2.9"] }, /"192\.0\.2\.9" is not a backend that was named/],
    [{ set: [at("10.20.0.9")], remove: [] }, /10\.20\.0\.9 is in network "green"/],
    [{ set: addresses.map(at), remove: [] }, /is an address of services/],
  ] as const)
    await t.throwsAsync(services.changeBackends("web", change), {
      code: "INVALID_ARGUMENT",
      message,
    });
  const none = { set: [], remove: ["192.0.2.2"] };
  await t.throwsAsync(services.changeBackends("none", none), { code: "SERVICE_NOT_FOUND" });
  t.like(
    t.throws(() => services.get("wbe")),
    { code: "SERVICE_NOT_FOUND", hint: 'Did you mean "web"? See podnet service list' },
  );
  t.deepEqual(backends("web"), ["192.0.2.2", "192.0.2.3", "192.0.2.4"]);
});

test("a service has as many backends as it may have, however they are added", async (t) => {
  const { services } = open(t);
  const many = Array.from({ length: 1024 }, (_, i) => `100.64.${i >> 7}.${(i & 127) + 1}`);
  await services.create(spec("web", ...many));
  await t.throwsAsync(services.changeBackends("web", { set: [at("192.0.2.1")], remove: [] }), {
    code: "INVALID_ARGUMENT",
  });
  const [first = ""] = many;
  const { endpoints } = await services.changeBackends("web", {
    set: [at("192.0.2.1")],
    remove: [first],
  });
  t.is(endpoints.length, 1024);
});

test("a backend has no port of its own where the service has several, however it is added", async (t) => {
  const { services } = open(t);
  const ports = [80, 81].map((port) => ({ protocol: "tcp" as const, port, target: port }));
  await services.create({ ...spec("web"), ports });
  const set = [{ ...at("192.0.2.1"), port: 8080 }];
  await t.throwsAsync(services.changeBackends("web", { set, remove: [] }), {
    message: /only where the service has one port/,
  });
});

test("a backend that fails its check gets no connections, unless all do", async (t) => {
  const ill = new Set<string>();
  const { services, host, events } = open(t, undefined, async ({ address }) =>
    ill.has(address) ? "it answered with status 503" : undefined,
  );
  const metric = async (health: string): Promise<number | undefined> => {
    const [gauge] = serviceMetrics(services);
    const found = await gauge?.get();
    return found?.values.find(({ labels }) => labels["health"] === health)?.value;
  };
  const weights = (): string =>
    host.rules[0]?.ports[0]?.backends.map(({ weight }) => weight).join(" ") ?? "";
  const become = async (wanted: string): Promise<void> => {
    // Answers come every second. (A test that hangs is ended by its time.)
    while (weights() !== wanted) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  const check = { intervalS: 1, timeoutS: 1, rise: 1, fall: 1 };
  const asked = { ...spec("web", "192.0.2.1", "192.0.2.2"), check };
  ill.add("192.0.2.1");
  const { endpoints } = await services.create(asked);
  t.deepEqual(
    endpoints.map(({ health }) => health),
    ["unknown", "unknown"],
    "before its first answer a backend counts as healthy",
  );
  await become("0 1");
  const [first] = services.get("web").endpoints;
  t.is(first?.health, "unhealthy");
  t.is(first?.healthReason, "it answered with status 503");
  t.is(first?.weight, 1, "as asked for");
  t.deepEqual(events(), [
    'Backend 192.0.2.1 port 80 of service "web" is unhealthy: it answered with status 503',
  ]);
  t.is(await metric("unhealthy"), 1);
  t.deepEqual(services.get("web").notices, []);
  ill.add("192.0.2.2");
  await become("1 1");
  t.regex(services.get("web").notices.join(), /^All backends of "web" fail its check/);
  ill.clear();
  while (services.get("web").endpoints.some(({ health }) => health !== "healthy"))
    await new Promise((resolve) => setTimeout(resolve, 20));
  t.is(weights(), "1 1");
  t.deepEqual(services.get("web").notices, []);
  t.is(events().length, 4);
  t.is(await metric("healthy"), 2);
  t.deepEqual(
    services.healthChanges.map(({ healthy, count }) => [healthy, count]),
    [
      [false, 2],
      [true, 2],
    ],
  );
  const { check: _, ...unchecked } = asked;
  t.is((await services.update(unchecked)).endpoints[0]?.health, undefined);
});

test("backends that turn again and again make no more than 60 events a minute", (t) => {
  let now = 0;
  const texts: string[] = [];
  const turns = new HealthJournal({
    clock: { monotonic: () => now },
    journal: { emit: ({ data }) => texts.push(data?.text ?? "") },
  });
  const check = { intervalS: 1, timeoutS: 1, rise: 1, fall: 1 };
  const backend = { service: "web" as ServiceName, address: "192.0.2.1" as Ip, port: 80, check };
  const turn = (times: number): void => {
    for (let i = 0; i < times; i++)
      turns.turned(backend, { healthy: i % 2 === 1, asked: true, against: 0 });
  };
  turn(500);
  t.is(texts.length, 60);
  now = 59_999;
  turn(2);
  t.is(texts.length, 60);
  now = 60_000;
  turn(2);
  t.is(texts.length, 62);
  t.is(
    turns.counts.reduce((sum, { count }) => sum + count, 0),
    504,
  );
  turns.keep(new Set());
  t.deepEqual(turns.counts, []);
});
