import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { CreatePodRequestSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateCreate } from "../../../api/validate.ts";
import { type Clock, systemClock } from "../../../core/clock.ts";
import { type Config, resolveConfig } from "../../../daemon/config/config.ts";
import type { NetworkName } from "../../../core/names.ts";
import { Journal } from "../../../daemon/events/journal.ts";
import { Metrics } from "../../../daemon/main/metrics.ts";
import type { NetworkDefinition } from "../../../daemon/config/network-definition.ts";
import { Addresses } from "../../../daemon/ipam/addresses.ts";
import { KeptPlans } from "../../../daemon/pods/store/kept-plans.ts";
import { Pods } from "../../../daemon/pods/pods.ts";
import { PodRecords } from "../../../daemon/pods/store/records.ts";
import { Database } from "../../../daemon/store/database.ts";
import { listNetworks, putNetwork } from "../../../daemon/networks/store.ts";
import type { PodRow } from "../../../daemon/pods/store/pods.ts";
import { openLog } from "../../../linux/log.ts";
import { type PlayedHost, playHost } from "./host.ts";

/** A /29: its gateway is .1, pods get .2 to .6. */
export function configuration(settings: Readonly<Record<string, string>>): Config {
  const directory = mkdtempSync(join(tmpdir(), "podnet-pods-"));
  const image = join(directory, "image");
  const file = join(directory, "config.toml");
  for (const path of [image, file]) writeFileSync(path, "\n");
  const flags = {
    state_dir: join(directory, "state"),
    run_dir: join(directory, "run"),
    "image.kernel": image,
    "image.initrd": image,
    "network.cidr": "10.0.0.0/29",
    ...settings,
  };
  mkdirSync(flags.state_dir);
  return resolveConfig({
    env: {},
    flags: new Map(Object.entries(flags)),
    file,
    checkout: "/nowhere",
  }).config;
}

const never = new AbortController().signal;
const progress = { started: () => {}, finished: () => {} };

type Asked = MessageInitShape<typeof CreatePodRequestSchema>;

export interface Node extends PlayedHost, Disposable {
  readonly pods: Pods;
  readonly addresses: Addresses;
  readonly records: PodRecords;
  readonly kept: KeptPlans;
  readonly db: Database;
  readonly journal: Journal;
  /** The networks there are; those named here answer names. */
  readonly definitions: NetworkDefinition[];
  readonly resolving: Set<NetworkName>;
  create(asked?: Asked): Promise<PodRow>;
  /** What is in the store for everybody else to read: what would be left after a loss of power. */
  stored(sql: string): readonly Record<string, unknown>[];
}

/** All of the daemon that looks after pods, with a real store, over a host that is played. */
export function openNode(config: Config, clock: Clock = systemClock): Node {
  const db = Database.openIn(config.stateDir);
  const { network } = config;
  const { name } = network;
  putNetwork(db, network, { state: "ready", configured: true, createdMs: 0 });
  const journal = new Journal(db, clock);
  // Beside those that a state has left.
  const definitions = listNetworks(db).map(({ definition }) => definition);
  const addresses = new Addresses(db, definitions, config.quarantineMs, clock);
  const played = playHost();
  const { published } = played.host;
  const kept = new KeptPlans(config);
  const records = new PodRecords({ db, journal, addresses, clock, published, kept });
  const { host } = played;
  const log = openLog({ component: "test", level: "silent" });
  const metrics = new Metrics({
    pods: () => records.list(),
    pools: () => addresses.subnets(name).map((subnet) => ({ network: name, ...subnet })),
  });
  const resolving = new Set<NetworkName>();
  const networks = {
    list: () => definitions,
    refuseChanging: () => {},
    domainOf: (asked: NetworkName) => (resolving.has(asked) ? "podnet" : undefined),
  };
  const parts = { db, config, host, records, kept, addresses, networks, journal, log, metrics };
  const pods = new Pods(parts);
  return Object.assign(played, {
    pods,
    addresses,
    records,
    kept,
    db,
    journal,
    definitions,
    resolving,
    create: (asked: Asked = {}) =>
      pods.create(validateCreate(create(CreatePodRequestSchema, asked), { network: name }), {
        signal: never,
        progress,
      }),
    stored: (sql: string) => {
      const reader = new DatabaseSync(join(config.stateDir, "state.db"), { readOnly: true });
      using _reader = { [Symbol.dispose]: () => reader.close() };
      return reader.prepare(sql).all();
    },
    [Symbol.dispose]: () => db.close(),
  });
}
