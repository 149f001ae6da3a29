import type { Fault } from "../fault.ts";

const shared = "test/overlay/shared-services.test.ts";
const unit = "test/unit/daemon/services/plan-service.test.ts";
const health = "test/unit/daemon/services/health.test.ts";
const kernel = "test/kernel/services.test.ts";
const changes = "test/unit/daemon/services/services.test.ts";

/** Services: where they lead, who reaches them, and that they open nothing. */
export const servicesFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a port reflects no frames for a service that leads back to its pod",
    file: "network/bridge/hairpin.ts",
    find: "served?.has(ip) === true || ",
    put: "",
    noticedBy: {
      file: kernel,
      title: "a pod reaches itself by a service, also where frames pass the rules (nftables)",
    },
  },
  {
    kind: "bound",
    name: "all backends are asked at once",
    file: "daemon/services/health/health-checks.ts",
    find: "while (this.#asking < mostAtOnce) {",
    put: "while (this.#asking < mostAtOnce * 1000) {",
    noticedBy: {
      file: health,
      title: "no more than 64 backends are asked at a time, and all in the end",
    },
  },
  {
    kind: "bound",
    name: "a backend is unhealthy after too few bad answers",
    file: "daemon/services/health/verdict.ts",
    find: "if (against >= (good ? rise : fall))",
    put: "if (against >= rise)",
    noticedBy: { file: health, title: "so many answers in a row turn a verdict, and no fewer" },
  },
  {
    kind: "record",
    name: "a damaged definition of the overlay takes its service away",
    file: "daemon/services/shared/overlay-services.ts",
    find: "this.#refuse(name, thrown.message);",
    put: "drop(name);",
    noticedBy: {
      file: shared,
      title: "damaged and hostile definitions are refused; what was served before goes on",
    },
  },
  {
    kind: "record",
    name: "an etcd that lost its data deletes the services of all hosts",
    file: "daemon/services/shared/overlay-services.ts",
    find: "if (isOther ? there === undefined : BigInt(shared.revision) > known.revision)",
    put: "if (known.revision < 0n)",
    noticedBy: {
      file: shared,
      title: "an etcd that lost its data is given the services again, and no deleted one",
    },
  },
  {
    kind: "lock",
    name: "two hosts give two services one address",
    file: "daemon/overlays/records/shared-hosts.ts",
    find: "...fresh.map((address): Compare => {",
    put: "...fresh.slice(9).map((address): Compare => {",
    noticedBy: {
      file: shared,
      title: "two hosts make one name at once: one is refused, and hears who has it",
    },
  },
  {
    kind: "undo",
    name: "a service whose rules the host refuses stays in the list",
    file: "daemon/services/services.ts",
    find: 'journal.transact("undo service", undo);',
    put: 'journal.transact("undo service", () => {});',
    noticedBy: {
      file: changes,
      title: "a service whose rules the host refuses is as it was before the call",
    },
  },
  {
    kind: "access",
    name: "pods of an isolated network reach each other by a service",
    file: "daemon/services/endpoints.ts",
    find: "if (own === undefined || own.isolated) return outside;",
    put: "if (own === undefined) return outside;",
    noticedBy: {
      file: unit,
      title: "backends are the named and chosen pods of the network, and what is outside",
    },
  },
  {
    kind: "undo",
    name: "a flow that began before its service stays where it was",
    file: "network/bridge/flows.ts",
    find: 'conntrack.flows("reply", added)',
    put: 'conntrack.flows("reply", [])',
    noticedBy: {
      file: kernel,
      title: "a flow that began before its service is led to a backend, too",
    },
  },
  {
    kind: "bound",
    name: "weights do not count where clients stay with their backends",
    file: "network/model/service.ts",
    find: "if (turn.credit < greatest || left === 0) continue;",
    put: "if (left === 0) continue;",
    noticedBy: {
      file: unit,
      title: "slots of clients that stay are even, and few clients move with a change",
    },
  },
  {
    kind: "bound",
    name: "the last slot is never drawn",
    file: "network/firewall/nftables/service-table.ts",
    find: "mod ${slots.length}${sticky",
    put: "mod ${Math.max(1, slots.length - 1)}${sticky",
    noticedBy: {
      file: kernel,
      title: "connections to a service go to all of its pods (iptables-nft)",
    },
  },
  {
    kind: "access",
    name: "other networks and the LAN reach a service's address",
    file: "network/firewall/nftables/service-table.ts",
    find: 'hook: { type: "filter", hook: "forward", priority: -10 },\n      rules: ["ip daddr @virtual4 goto unmet"',
    put: 'hook: { type: "filter", hook: "forward", priority: -10 },\n      rules: ["ip daddr @virtual4 counter"',
    noticedBy: {
      file: kernel,
      title: "policies decide by the backend's address, as isolation does",
    },
  },
  {
    kind: "access",
    name: "a backend of the client's own network answers it directly",
    file: "network/firewall/nftables/service-table.ts",
    find: "ip saddr . oifname @own4 masquerade",
    put: "ip saddr . oifname @own4 counter",
    noticedBy: {
      file: kernel,
      title: "connections to a service go to all of its pods (iptables-nft)",
    },
  },
];
