import type { DatabaseSync } from "node:sqlite";
import { attachmentsOfDecisions } from "./attachments-of-decisions.ts";
import { plansOfDecisions } from "./plans-of-decisions.ts";

/**
 * A step of the schema: SQL, or a function for changes of rows that SQL alone cannot make. It runs
 * inside a transaction.
 */
export type Migration = string | ((db: DatabaseSync) => void);

/**
 * The schema, as the steps that lead to it. A step is never edited once released: a change is a new
 * step. `PRAGMA user_version` counts the steps a database has taken.
 */
export const migrations: readonly Migration[] = [
  `
  CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

  CREATE TABLE networks (
    name       TEXT PRIMARY KEY,
    bridge     TEXT NOT NULL UNIQUE,
    gateway    TEXT NOT NULL,
    mtu        INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE pods (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    state      TEXT NOT NULL CHECK (state IN
                 ('creating','running','paused','stopping','stopped','failed','deleting')),
    reason     TEXT,
    failure    TEXT,
    spec       TEXT NOT NULL,
    plan       TEXT NOT NULL,
    guest      TEXT,
    observed   TEXT,
    spans      TEXT NOT NULL DEFAULT '[]',
    established INTEGER NOT NULL DEFAULT 0 CHECK (established IN (0, 1)),
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE runs (
    pod_id     TEXT PRIMARY KEY REFERENCES pods (id) ON DELETE CASCADE,
    pid        INTEGER NOT NULL,
    start_time TEXT NOT NULL,
    boot_id    TEXT NOT NULL,
    uid        INTEGER NOT NULL,
    run_dir    TEXT NOT NULL,
    started_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE interfaces (
    pod_id     TEXT NOT NULL REFERENCES pods (id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    network    TEXT NOT NULL REFERENCES networks (name),
    tap        TEXT NOT NULL UNIQUE,
    mac        TEXT NOT NULL UNIQUE,
    guest_name TEXT NOT NULL,
    PRIMARY KEY (pod_id, position)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE leases (
    network    TEXT NOT NULL REFERENCES networks (name) ON DELETE CASCADE,
    address    TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_id   TEXT NOT NULL,
    since_ms   INTEGER NOT NULL,
    freed_ms   INTEGER,
    PRIMARY KEY (network, address)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX leases_by_owner ON leases (owner_kind, owner_id);

  CREATE TABLE requests (
    id         TEXT PRIMARY KEY,
    digest     TEXT NOT NULL,
    pod_id     TEXT NOT NULL,
    error      TEXT,
    done       INTEGER NOT NULL CHECK (done IN (0, 1)),
    created_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX requests_by_age ON requests (created_ms);

  CREATE TABLE events (
    cursor     INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms    INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    pod_id     TEXT NOT NULL,
    pod_name   TEXT NOT NULL,
    data       TEXT NOT NULL
  ) STRICT;
  `,
  // The state a pod returns to when a change of it is interrupted; interfaces without a network of
  // podnet's, and without a NIC.
  `
  ALTER TABLE pods ADD COLUMN before TEXT;

  CREATE TABLE interfaces_now (
    pod_id     TEXT NOT NULL REFERENCES pods (id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    network    TEXT REFERENCES networks (name),
    tap        TEXT UNIQUE,
    mac        TEXT UNIQUE,
    guest_name TEXT NOT NULL,
    PRIMARY KEY (pod_id, position)
  ) STRICT, WITHOUT ROWID;
  INSERT INTO interfaces_now SELECT pod_id, position, network, tap, mac, guest_name FROM interfaces;
  DROP TABLE interfaces;
  ALTER TABLE interfaces_now RENAME TO interfaces;
  `,
  // Networks made by API: what each is, whether it is the configured one, and what was under way
  // with it.
  `
  ALTER TABLE networks ADD COLUMN state TEXT NOT NULL DEFAULT 'ready'
    CHECK (state IN ('creating','ready','updating','deleting'));
  ALTER TABLE networks ADD COLUMN configured INTEGER NOT NULL DEFAULT 1 CHECK (configured IN (0, 1));
  ALTER TABLE networks ADD COLUMN before TEXT;
  ALTER TABLE networks ADD COLUMN definition TEXT NOT NULL DEFAULT '{}';
  UPDATE networks SET definition = json_object(
    'subnets', json_array(json_object('gateway', gateway, 'ranges', json_array(), 'reserved', json_array())),
    'mtu', mtu, 'dns', json_array(), 'dnsSearch', json_array(), 'masquerade', json('true'),
    'isolated', json('false'), 'vlanFiltering', json('false'), 'mayOverlap', json('false'));
  ALTER TABLE networks DROP COLUMN gateway;
  ALTER TABLE networks DROP COLUMN mtu;
  `,
  // Host ports that pods have, one row for each address they are taken at.
  `
  CREATE TABLE ports (
    protocol   TEXT NOT NULL CHECK (protocol IN ('tcp','udp','sctp')),
    host_port  INTEGER NOT NULL,
    host_ip    TEXT NOT NULL,
    count      INTEGER NOT NULL,
    pod_id     TEXT NOT NULL REFERENCES pods (id) ON DELETE CASCADE,
    PRIMARY KEY (protocol, host_port, host_ip)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX ports_by_pod ON ports (pod_id);
  `,
  // Networks of containers (CNI), and the host ports they have alongside those of pods.
  `
  CREATE TABLE attachments (
    id           TEXT PRIMARY KEY,
    container_id TEXT NOT NULL,
    if_name      TEXT NOT NULL,
    config       TEXT NOT NULL,
    network      TEXT NOT NULL REFERENCES networks (name),
    netns        TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('adding','ready','deleting')),
    plan         TEXT NOT NULL,
    created_ms   INTEGER NOT NULL,
    changed_ms   INTEGER NOT NULL,
    UNIQUE (container_id, if_name)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX attachments_by_network ON attachments (network);

  CREATE TABLE ports_now (
    protocol      TEXT NOT NULL CHECK (protocol IN ('tcp','udp','sctp')),
    host_port     INTEGER NOT NULL,
    host_ip       TEXT NOT NULL,
    count         INTEGER NOT NULL,
    pod_id        TEXT REFERENCES pods (id) ON DELETE CASCADE,
    attachment_id TEXT REFERENCES attachments (id) ON DELETE CASCADE,
    PRIMARY KEY (protocol, host_port, host_ip),
    CHECK ((pod_id IS NULL) <> (attachment_id IS NULL))
  ) STRICT, WITHOUT ROWID;
  INSERT INTO ports_now SELECT protocol, host_port, host_ip, count, pod_id, NULL FROM ports;
  DROP TABLE ports;
  ALTER TABLE ports_now RENAME TO ports;
  CREATE INDEX ports_by_pod ON ports (pod_id);
  CREATE INDEX ports_by_attachment ON ports (attachment_id);
  `,
  // Each ADD asks who has its MAC.
  "CREATE INDEX attachments_by_mac ON attachments (plan ->> '$.mac')",
  // Identifies a container's links even where its plan is unreadable: a row with a damaged plan
  // could not even be deleted, for SQLite then computes its key in the index over the plan.
  `
  DROP INDEX attachments_by_mac;
  ALTER TABLE attachments ADD COLUMN mac TEXT;
  ALTER TABLE attachments ADD COLUMN host_link TEXT;
  UPDATE attachments SET mac = plan ->> '$.mac', host_link = plan ->> '$.fragment.hostLink'
    WHERE json_valid(plan);
  CREATE INDEX attachments_by_mac ON attachments (mac);
  `,
  plansOfDecisions,
  attachmentsOfDecisions,
  // Policies, as they were applied.
  `
  CREATE TABLE policies (
    name       TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    created_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  // Images of containers and disks; and work on images that is under way, each with a directory.
  `
  CREATE TABLE images (
    digest     TEXT PRIMARY KEY,
    type       TEXT NOT NULL CHECK (type IN ('root','disk')),
    state      TEXT NOT NULL CHECK (state IN ('storing','ready','removing')),
    config     TEXT NOT NULL,
    bytes      INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE image_names (
    name   TEXT PRIMARY KEY,
    digest TEXT NOT NULL REFERENCES images (digest)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX image_names_by_digest ON image_names (digest);
  CREATE TABLE image_jobs (
    id         TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  // The latest start of each pod's main process, and when its restart policy starts it again.
  `
  CREATE TABLE processes (
    pod_id     TEXT PRIMARY KEY REFERENCES pods (id) ON DELETE CASCADE,
    run        INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms   INTEGER,
    exit_code  INTEGER,
    signal     INTEGER,
    restarts   INTEGER NOT NULL,
    in_a_row   INTEGER NOT NULL,
    next_ms    INTEGER
  ) STRICT, WITHOUT ROWID;
  `,
  // The worker of a job on an image, and the control groups it is in.
  `
  ALTER TABLE image_jobs ADD COLUMN cgroups TEXT NOT NULL DEFAULT '[]';
  ALTER TABLE image_jobs ADD COLUMN pid INTEGER;
  ALTER TABLE image_jobs ADD COLUMN start_time TEXT;
  ALTER TABLE image_jobs ADD COLUMN boot_id TEXT;
  `,
  // When pods are to end by themselves.
  `
  CREATE TABLE expiries (
    pod_id     TEXT PRIMARY KEY REFERENCES pods (id) ON DELETE CASCADE,
    expires_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX expiries_by_time ON expiries (expires_ms);
  `,
  // Services, each with all that was decided about it.
  `
  CREATE TABLE services (
    name       TEXT PRIMARY KEY,
    network    TEXT NOT NULL,
    definition TEXT NOT NULL,
    created_ms INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX services_by_network ON services (network);
  `,
  // Containers in the machines of sandboxes.
  `
  CREATE TABLE sandbox_containers (
    id         TEXT PRIMARY KEY,
    pod_id     TEXT NOT NULL REFERENCES pods (id) ON DELETE CASCADE,
    state      TEXT NOT NULL CHECK (state IN ('creating','created','running','ended','removing')),
    plan       TEXT NOT NULL,
    machine    TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms   INTEGER,
    exit_code  INTEGER,
    signal     INTEGER,
    message    TEXT
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX sandbox_containers_by_pod ON sandbox_containers (pod_id);
  `,
  // Whether a container ended because its memory was at the limit.
  `
  ALTER TABLE sandbox_containers ADD COLUMN out_of_memory INTEGER NOT NULL DEFAULT 0;
  `,
];
