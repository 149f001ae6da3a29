import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { BackendSpec, ServiceSpec } from "../../api/service-spec.ts";
import type { Cidr, Ip, IpPrefix } from "../../core/address.ts";
import { systemClock } from "../../core/clock.ts";
import type { IfName, NetworkName, PodId, PodName, ServiceName } from "../../core/names.ts";
import type { NetworkDefinition } from "../../daemon/config/network-definition.ts";
import { Journal } from "../../daemon/events/journal.ts";
import { HostRecords } from "../../daemon/overlays/records/host-records.ts";
import { SharedHosts } from "../../daemon/overlays/records/shared-hosts.ts";
import type { OverlayView } from "../../daemon/overlays/view.ts";
import { Services } from "../../daemon/services/services.ts";
import { Database } from "../../daemon/store/database.ts";
import { connectEtcd } from "../../etcd/client.ts";
import { openLog } from "../../linux/log.ts";
import { nothingFound } from "../../network/bridge/inspect.ts";
import type { ServiceDesired } from "../../network/model/service.ts";
import { parsePrefix } from "../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import { healthRecordText } from "../../overlay/pods/health-record.ts";
import { hostIdOf, recordsPrefix } from "../../overlay/pods/keys.ts";
import type { PodRecord } from "../../overlay/pods/record.ts";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";
import { definition } from "../lab/network-definition.ts";
import { until } from "../lab/until.ts";

// Hosts of one overlay that serve each other's services, by a real etcd. The rules are those that a
// host would have; the pods are records.

let lab: EtcdLab;
test.serial.before(async () => {
  lab = await startEtcd();
});
test.after.always(() => lab?.[Symbol.asyncDispose]());

const patient = { callMs: 10_000, answerMs: 10_000 };
const prefixOf = (name: string) => recordsPrefix(parsePrefix(`/${name}`));
const log = openLog({ component: "test", level: "silent" });

/** The network of host n that is part of the overlay; its name is the host's own. */
const networkOf = (n: number): NetworkDefinition =>
  definition(`net${n}`, [`10.77.${n}.1/24`], { mtu: 1450 });

const viewOf = (n: number): OverlayView => ({
  name: "flannel",
  phase: "held",
  manager: "etcd",
  networks: ["10.77.0.0/16" as Cidr],
  subnets: [`10.77.${n}.0/24` as Cidr],
  backend: "vxlan",
  publicIps: [],
  mtu: 1450,
  reserved: false,
  troubles: [],
  peers: 0,
  skippedKeys: 0,
  network: networkOf(n).name,
});

const pod = (n: number, name: string, labels: Readonly<Record<string, string>> = {}): PodRecord => {
  const last = Buffer.from(name).reduce((sum, byte) => sum + byte, 0) % 200;
  return {
    id: name.padEnd(12, "a").slice(0, 12) as PodId,
    name: name as PodName,
    state: "running",
    createdMs: 1000,
    labels,
    interfaces: [
      {
        network: networkOf(n).name,
        overlay: "flannel" as NetworkName,
        name: "eth0" as IfName,
        addresses: [`10.77.${n}.${last + 2}/24` as IpPrefix],
      },
    ],
  };
};
const addressOf = (record: PodRecord): string =>
  record.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "";

const spec = (n: number, name: string, over: Partial<ServiceSpec> = {}): ServiceSpec => ({
  name: name as ServiceName,
  network: networkOf(n).name,
  addresses: [],
  ports: [{ protocol: "tcp", port: 5432, target: 5432 }],
  backends: [],
  select: { app: "db" },
  scope: "overlay",
  ...over,
});

interface Options {
  readonly lab?: EtcdLab;
  /** It publishes records, and serves nothing. */
  readonly records?: true;
  /** Of an earlier host, whose state goes on. */
  readonly directory?: string;
}

/** A host: its services, and what its kernel would have of them. */
class TestHost implements AsyncDisposable {
  readonly services: Services;
  readonly records: HostRecords;
  readonly n: number;
  readonly directory: string;
  pods: PodRecord[] = [];
  view: OverlayView;
  /** Leases of hosts that do not answer. */
  silent: readonly string[] = [];
  rules: readonly ServiceDesired[] = [];
  readonly #ends: (() => unknown)[] = [];

  constructor(n: number, overlay: string, options: Options = {}) {
    this.n = n;
    this.view = viewOf(n);
    this.directory = options.directory ?? mkdtempSync(join(tmpdir(), "podnet-shared-"));
    const db = Database.openIn(this.directory);
    const etcd = connectEtcd({ ...(options.lab ?? lab).client, timing: patient });
    const prefix = prefixOf(overlay);
    const network = {
      apply: async (desired: { kind: string; now?: () => unknown }) => {
        this.rules = desired.now?.() as readonly ServiceDesired[];
        return [];
      },
      inspectServices: async () => nothingFound,
      describeService: () => [],
      observe: { overlapsOf: async () => [] },
    };
    this.services = new Services({
      db,
      journal: new Journal(db, systemClock),
      clock: systemClock,
      config: { serviceCidrs: ["10.73.0.0/16" as Cidr], disableIptables: false },
      holders: () => [],
      networks: { list: () => [networkOf(n)] },
      log,
      network,
    });
    this.services.start();
    this.records = new HostRecords({
      etcd,
      prefix,
      host: hostIdOf(n as OwnerId, `host${n}`),
      clock: systemClock,
      random: Math.random,
      log,
      self: () => ({ name: `host${n}`, leases: [`lease${n}`] }),
      pods: () => this.pods,
      pod: (id) => this.pods.find((each) => each.id === id),
      onOthers: (change) => this.services.othersChanged(change),
    });
    const overlays = {
      list: () => [this.view],
      reaches: (_: string, lease: string) => (this.silent.includes(lease) ? false : undefined),
    };
    if (options.records !== true)
      this.services.share(
        new SharedHosts({ etcd, prefix, overlays, records: this.records, hostname: `host${n}` }),
      );
    this.records.start();
    this.#ends.push(
      () => this.records[Symbol.asyncDispose](),
      () => this.services[Symbol.asyncDispose](),
      () => etcd[Symbol.dispose](),
      () => db.close(),
    );
  }

  /** Where a service leads to by this host's rules, sorted; undefined: it does not serve it. */
  leads(name: string): readonly string[] | undefined {
    const found = this.rules.find((each) => each.name === name);
    return found?.ports[0]?.backends
      .filter(({ weight }) => weight > 0)
      .map(({ address }) => address)
      .toSorted();
  }

  async leadsTo(name: string, wanted: readonly string[] | undefined): Promise<void> {
    await until(
      `host ${this.n} to lead "${name}" to ${wanted?.join() ?? "nothing"}`,
      () => this.leads(name)?.join() === wanted?.toSorted().join(),
      20_000,
      () => `${this.leads(name)?.join()} ${this.services.troubles.join()}`,
    );
  }

  has(...pods: PodRecord[]): void {
    this.pods = pods;
    this.records.podsChanged();
  }

  /** Ends podnetd; its state stays for the next. */
  async end(): Promise<string> {
    for (const end of this.#ends.splice(0)) await end();
    return this.directory;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

const backend = (name: string, weight = 1): BackendSpec => ({ pod: name as PodName, weight });
const known = (host: TestHost, name: string) => () =>
  host.services.list().some((each) => each.name === name);

test.serial(
  "a service that one host defines is served by all, and leads to pods of all",
  async (t) => {
    await using one = new TestHost(1, "all");
    await using two = new TestHost(2, "all");
    await using three = new TestHost(3, "all");
    const [a, b] = [pod(2, "alpha", { app: "db" }), pod(3, "beta", { app: "db" })];
    two.has(a, pod(2, "other"));
    three.has(b);
    const made = await one.services.create(spec(1, "db"));
    t.is(made.shared?.host, "host1");
    // (Pods of a host itself are rows, which the test does not have.)
    await one.leadsTo("db", [addressOf(a), addressOf(b)]);
    await two.leadsTo("db", [addressOf(b)]);
    await three.leadsTo("db", [addressOf(a)]);
    t.deepEqual(two.services.get("db").addresses, made.addresses);
    t.is(two.services.get("db").network, networkOf(2).name);
    t.is(one.services.get("db").endpoints[0]?.host?.name, "host2");
    // A change by another host, and a pod that pauses.
    await two.services.changeBackends("db", { set: [backend("other", 3)], remove: [] });
    await one.leadsTo("db", [addressOf(a), addressOf(b), addressOf(pod(2, "other"))]);
    two.has({ ...a, state: "paused" }, pod(2, "other"));
    await one.leadsTo("db", [addressOf(b), addressOf(pod(2, "other"))]);
    // Whichever host deletes it.
    t.true(await three.services.delete("db"));
    for (const host of [one, two, three]) await host.leadsTo("db", undefined);
    t.is((await lab.etcdctl("get", "--prefix", `${prefixOf("all")}/service`)).trim(), "");
  },
);

test.serial("a host that leaves takes its backends along, and serves no more", async (t) => {
  await using one = new TestHost(1, "leave");
  await using two = new TestHost(2, "leave");
  const a = pod(2, "alpha", { app: "db" });
  two.has(a);
  await one.services.create(spec(1, "db"));
  await one.leadsTo("db", [addressOf(a)]);
  await two.leadsTo("db", []);
  two.view = { ...two.view, phase: "left", subnets: [] };
  two.has({ ...a, interfaces: [] });
  two.services.othersChanged();
  await one.leadsTo("db", []);
  await two.leadsTo("db", undefined);
  t.deepEqual(two.services.troubles, []);
  await t.throwsAsync(two.services.create(spec(2, "more")), { code: "UNSUPPORTED" });
  // It comes back, and then its podnetd is taken down.
  two.view = viewOf(2);
  two.has(a);
  two.services.othersChanged();
  await one.leadsTo("db", [addressOf(a)]);
  await two.leadsTo("db", []);
  await two.records.withdraw(AbortSignal.timeout(5000));
  await one.leadsTo("db", []);
});

test.serial("two hosts make one name at once: one is refused, and hears who has it", async (t) => {
  await using one = new TestHost(1, "names");
  await using two = new TestHost(2, "names");
  for (let i = 0; i < 5; i++) {
    const name = `s${i}`;
    const both = await Promise.allSettled([
      one.services.create(spec(1, name)),
      two.services.create(spec(2, name, { ports: [{ protocol: "udp", port: 53, target: 53 }] })),
    ]);
    const refused = both.filter((each) => each.status === "rejected");
    t.is(refused.length, 1, name);
    t.like(refused[0]?.reason, { code: "NAME_IN_USE" });
    const winner = both[0].status === "fulfilled" ? "host1" : "host2";
    t.regex(String(refused[0]?.reason), new RegExp(`"flannel", which host "${winner}" has made`));
    for (const host of [one, two]) {
      await until(`${name} on host ${host.n}`, known(host, name));
      const wanted = winner === "host1" ? "tcp" : "udp";
      t.is(host.services.get(name).ports[0]?.protocol, wanted);
    }
  }
  // One address for two services.
  const { addresses } = one.services.get("s0");
  const own = { ...spec(2, "x", { addresses }), scope: undefined } as never;
  await t.throwsAsync(two.services.create(own), { code: "ADDRESS_IN_USE" });
  const apart = ["10.73.9.9" as Ip];
  const asked = await Promise.allSettled([
    one.services.create(spec(1, "left", { addresses: apart })),
    two.services.create(spec(2, "right", { addresses: apart })),
  ]);
  const [refused] = asked.filter((each) => each.status === "rejected");
  t.like(refused?.reason, { code: "ADDRESS_IN_USE" });
  t.regex(String(refused?.reason), /is the address of service "(left|right)"/);
  // One that was deleted by etcdctl leaves its address to the next.
  const keys = `${prefixOf("names")}/services/`;
  const gone = asked[0].status === "fulfilled" ? "left" : "right";
  await lab.etcdctl("del", `${keys}${gone}`);
  await until("its end", () => !known(one, gone)() && !known(two, gone)());
  await one.services.create(spec(1, "next", { addresses: apart }));
});

test.serial("changes of single backends by all hosts at once are all done", async (t) => {
  await using one = new TestHost(1, "changes");
  await using two = new TestHost(2, "changes");
  await one.services.create(spec(1, "db"));
  await until("host 2 to know it", known(two, "db"));
  const names = ["a", "b", "c", "d", "e", "f"];
  await Promise.all(
    names.map((name, i) =>
      (i % 2 === 0 ? one : two).services.changeBackends("db", { set: [backend(name)], remove: [] }),
    ),
  );
  for (const host of [one, two]) {
    const backends = () => host.services.get("db").backends.map((each) => String(each.pod));
    await until(
      `all on host ${host.n}`,
      () => backends().toSorted().join() === names.join(),
      9000,
      () => backends().join(),
    );
  }
  t.pass();
});

test.serial(
  "a service of a host's own stands in the way of the overlay's, and that is said",
  async (t) => {
    await using one = new TestHost(1, "own");
    await using two = new TestHost(2, "own");
    const alone = { ...spec(2, "db"), scope: undefined } as never;
    t.regex((await two.services.create(alone)).notices.join(), /of this host alone/);
    const two80 = {
      ...spec(2, "x", { addresses: ["10.73.8.8" as Ip] }),
      scope: undefined,
    } as never;
    await two.services.create(two80);
    await one.services.create(spec(1, "db"));
    await one.services.create(spec(1, "y", { addresses: ["10.73.8.8" as Ip] }));
    await until("two troubles", () => two.services.troubles.length === 2);
    t.regex(two.services.troubles.join("\n"), /"db".*a service of its own that is called so/);
    t.regex(two.services.troubles.join("\n"), /"y".*10\.73\.8\.8 is the address of service "x"/);
    t.is(two.services.get("db").shared, undefined);
    // What is in the way goes, and the next look finds it so.
    await two.services.delete("db");
    two.services.othersChanged();
    await until("the overlay's", () => known(two, "db")() && two.services.troubles.length === 1);
    t.is(two.services.get("db").shared?.host, "host1");
  },
);

test.serial(
  "damaged and hostile definitions are refused; what was served before goes on",
  async (t) => {
    await using one = new TestHost(1, "hostile");
    await using two = new TestHost(2, "hostile");
    const a = pod(2, "alpha", { app: "db" });
    two.has(a);
    await one.services.create(spec(1, "db"));
    await one.leadsTo("db", [addressOf(a)]);
    const key = (name: string) => `${prefixOf("hostile")}/services/${name}`;
    const text = (await lab.etcdctl("get", "--print-value-only", key("db"))).trim();
    const good = JSON.parse(text) as { spec: Record<string, unknown> };
    const withSpec = (over: object) => JSON.stringify({ ...good, spec: { ...good.spec, ...over } });
    const hostile: readonly (readonly [string, RegExp])[] = [
      ["", /cannot be read/],
      ["\u0000\u{1f4a9}", /cannot be read/],
      ["[]", /cannot be read/],
      ["null", /it is no object/],
      [JSON.stringify({ ...good, version: 2 }), /its version is 2/],
      [JSON.stringify({ ...good, host: 5 }), /names no overlay or no host/],
      [JSON.stringify({ ...good, overlay: "../etc" }), /./],
      [withSpec({ name: "other" }), /of another service/],
      [withSpec({ name: "x".repeat(300_000) }), /too long/],
      [withSpec({ network: "net2" }), /of another service/],
      [withSpec({ addresses: [] }), /no address/],
      [withSpec({ addresses: ["192.0.2.7"] }), /not an address of services/],
      [withSpec({ addresses: ["10.73.0.0"] }), /first or last/],
      [withSpec({ addresses: ["10.73.1.1", "10.73.1.2"] }), /both addresses/i],
      [withSpec({ ports: [] }), /needs a port/],
      [withSpec({ ports: [{ port: 99_999 }] }), /not a port/],
      [withSpec({ ports: [{ port: -1 }] }), /cannot be read/],
      [withSpec({ backends: [{ address: "127.0.0.1" }] }), /cannot be a backend/],
      [withSpec({ backends: [{ address: "10.77.1.9" }] }), /is in network/],
      [withSpec({ check: { path: "/\r\nHost: x" } }), /not a path/],
      [withSpec({ anything: "newer" }), /cannot be read/],
    ];
    for (const [bad, why] of hostile) {
      const etcd = connectEtcd(lab.client);
      await etcd.put(key("db"), bad);
      etcd[Symbol.dispose]();
      await until(
        `${bad.slice(0, 60)} to be refused`,
        () => why.test(one.services.troubles.join()) && one.services.troubles.length === 1,
        9000,
        () => one.services.troubles.join() || "no trouble",
      );
      t.deepEqual(one.leads("db"), [addressOf(a)], bad.slice(0, 60));
      // The condition is of this one text.
      await lab.etcdctl("put", key("db"), withSpec({ select: { app: "db" } }));
      await until("all to be well", () => one.services.troubles.length === 0);
    }
    // Names and hosts that are none are passed over, and counted.
    for (const name of ["Capital", "a/b", "-", "a".repeat(64)])
      await lab.etcdctl("put", key(name), text);
    await lab.etcdctl("put", `${prefixOf("hostile")}/health/none`, "{}");
    await until("them to be counted", () => one.records.remote.skipped >= 5);
    t.deepEqual(one.services.troubles, []);
    t.deepEqual(
      one.services.list().map(({ name }) => String(name)),
      ["db"],
    );
  },
);

test.serial("what the host of a backend says of its health counts on all hosts", async (t) => {
  await using one = new TestHost(1, "health");
  await using two = new TestHost(2, "health", { records: true });
  await using three = new TestHost(3, "health");
  const [a, b] = [pod(2, "alpha", { app: "db" }), pod(3, "beta", { app: "db" })];
  two.has(a);
  three.has(b);
  const check = { intervalS: 60, timeoutS: 1, rise: 1, fall: 1 };
  await one.services.create(spec(1, "db", { check }));
  await one.leadsTo("db", [addressOf(a), addressOf(b)]);
  const say = (address: string, why: string) =>
    two.records.healthChanged(
      healthRecordText([{ service: "db" as ServiceName, address: address as Ip, port: 5432, why }]),
    );
  say(addressOf(a), "it answered with status 500");
  await one.leadsTo("db", [addressOf(b)]);
  t.like(
    one.services.get("db").endpoints.find(({ address }) => address === addressOf(a)),
    { health: "unhealthy", healthReason: "it answered with status 500" },
  );
  // A host has no say about another's.
  say(addressOf(b), "hostile");
  await one.leadsTo("db", [addressOf(a), addressOf(b)]);
  // Nor does a record that cannot be read.
  const key = `${prefixOf("health")}/health/${hostIdOf(2 as OwnerId, "host2")}`;
  await lab.etcdctl("put", key, '{"version":1,"unhealthy":[{"service":"db"}]}');
  await one.leadsTo("db", [addressOf(a), addressOf(b)]);
});

test.serial(
  "backends of a host that does not answer get no connections, unless none does",
  async (t) => {
    await using one = new TestHost(1, "silent");
    await using two = new TestHost(2, "silent");
    await using three = new TestHost(3, "silent");
    const [a, b] = [pod(2, "alpha", { app: "db" }), pod(3, "beta", { app: "db" })];
    two.has(a);
    three.has(b);
    await one.services.create(spec(1, "db"));
    await one.leadsTo("db", [addressOf(a), addressOf(b)]);
    one.silent = ["lease2"];
    one.services.othersChanged({ services: false, lost: false });
    await one.leadsTo("db", [addressOf(b)]);
    t.is(one.services.get("db").endpoints[0]?.healthReason, "its host does not answer");
    one.silent = ["lease2", "lease3"];
    one.services.othersChanged({ services: false, lost: false });
    await one.leadsTo("db", [addressOf(a), addressOf(b)]);
    t.regex(one.services.get("db").notices.join(), /do not answer: they get connections/);
  },
);

test.serial(
  "etcd away: services, backends and health stay, also over a start of podnetd",
  async (t) => {
    await using away = await startEtcd();
    const host = new TestHost(1, "away", { lab: away });
    await using two = new TestHost(2, "away", { lab: away });
    const a = pod(2, "alpha", { app: "db" });
    two.has(a);
    await host.services.create(spec(1, "db"));
    await host.leadsTo("db", [addressOf(a)]);
    const [member] = away.members;
    await member?.kill();
    await until("it to be missed", () => host.records.staleMs !== undefined);
    t.deepEqual(host.leads("db"), [addressOf(a)]);
    for (const call of [
      () => host.services.create(spec(1, "more")),
      () => host.services.changeBackends("db", { set: [backend("x")], remove: [] }),
      () => host.services.delete("db"),
    ])
      await t.throwsAsync(call(), { code: "ETCD_UNREACHABLE" });
    t.deepEqual(host.services.get("db").backends, []);
    const directory = await host.end();
    await using again = new TestHost(1, "away", { lab: away, directory });
    await again.leadsTo("db", [addressOf(a)]);
    // What has changed meanwhile comes when it is back.
    const b = pod(2, "later", { app: "db" });
    two.has(b);
    member?.start();
    await away.ready();
    await again.leadsTo("db", [addressOf(b)]);
    await again.services.changeBackends("db", { set: [backend("x")], remove: [] });
    await until("host 2 to hear of it", () => two.services.get("db").backends.length === 1);
  },
);

test.serial(
  "an etcd that lost its data is given the services again, and no deleted one",
  async (t) => {
    await using lost = await startEtcd();
    await using one = new TestHost(1, "lost", { lab: lost });
    await using two = new TestHost(2, "lost", { lab: lost });
    const a = pod(2, "alpha", { app: "db" });
    two.has(a);
    for (const name of ["db", "gone"]) await one.services.create(spec(1, name));
    for (const host of [one, two]) await until("both", known(host, "gone"));
    await two.services.delete("gone");
    await until("its end", () => !known(one, "gone")());
    const [member] = lost.members;
    await member?.kill();
    member?.wipe();
    member?.start();
    await lost.ready();
    const key = `${prefixOf("lost")}/services/`;
    await until(
      "the service in etcd",
      async () => (await lost.etcdctl("get", "--prefix", "--keys-only", key)).trim() === `${key}db`,
      20_000,
    );
    await one.leadsTo("db", [addressOf(a)]);
    await two.leadsTo("db", []);
    // And is one of the hosts as before.
    await two.services.delete("db");
    await one.leadsTo("db", undefined);
    t.deepEqual(one.services.troubles, []);
  },
);
