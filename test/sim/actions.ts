import type { PodSpec } from "../../api/pod-spec.ts";
import type { CreateSpec } from "../../api/validate/validate.ts";
import type { Ip } from "../../core/address.ts";
import type { NetworkName, PodName } from "../../core/names.ts";
import { Changes } from "./changes.ts";
import { ContainerActions } from "./container-actions.ts";
import { PolicyActions } from "./policy-actions.ts";
import { ServiceActions } from "./service-actions.ts";
import type { Machine } from "./machines.ts";
import type { Simulation } from "./simulation.ts";

const names = ["a", "b", "c", "d"] as PodName[];
const requestIds = ["r1", "r2", "r3"];

/** What clients, machines and the administrator do, drawn one at a time. */
export class Actions {
  readonly #sim: Simulation;
  readonly #changes: Changes;
  readonly #containers: ContainerActions;
  readonly #policies: PolicyActions;
  readonly #services: ServiceActions;
  /** Some histories are about policies more than about anything else. */
  readonly #policyWeight: number;

  constructor(sim: Simulation) {
    this.#sim = sim;
    this.#changes = new Changes(sim);
    this.#containers = new ContainerActions(sim);
    this.#policies = new PolicyActions(sim);
    this.#services = new ServiceActions(sim);
    this.#policyWeight = sim.world.random.pick([2, 2, 25]);
  }

  any(): void {
    const { random } = this.#sim.world;
    const action = random.weighted({
      create: 10,
      delete: 5,
      start: 3,
      change: 8,
      network: 3,
      container: 12,
      policy: this.#policyWeight,
      service: 3,
      machine: 4,
      pool: this.#hasPool ? 5 : 0,
      administrator: 2,
      kill: 1,
      restart: 1,
      reboot: 0.5,
      lost: 0.5,
      clock: 0.5,
    });
    switch (action) {
      case "create":
        return this.#create();
      case "delete":
        return this.#delete();
      case "start":
        return this.#start();
      case "change":
        return this.#change();
      case "network":
        return this.#changes.network();
      case "container":
        return this.#containers.any();
      case "policy":
        return this.#policies.any();
      case "service":
        return this.#services.any();
      case "machine":
        return this.#machine();
      case "pool":
        return this.#pool();
      case "administrator":
        return this.#administrator();
      case "kill":
        this.#sim.note("kill -9");
        return this.#sim.kill();
      case "restart":
        return this.#sim.restart();
      case "reboot":
        this.#sim.note("the host restarts");
        this.#sim.kill();
        this.#sim.world.reboot();
        this.#sim.book.clear();
        this.#sim.foreignChanged();
        return;
      case "lost":
        return this.#sim.loseState();
      case "clock": {
        const ms = random.pick([-86_400_000, -5000, 5000, 3_600_000]);
        this.#sim.note(`the clock jumps by ${ms} ms`);
        return this.#sim.time.jump(ms);
      }
    }
  }

  get #hasPool(): boolean {
    return this.#sim.world.config.factory === "pool";
  }

  /** What administrators do with machines that wait. */
  #pool(): void {
    const sim = this.#sim;
    const { random, machines } = sim.world;
    switch (random.weighted({ fill: 3, drain: 3, image: 2 })) {
      case "fill": {
        const timeout = new AbortController();
        if (random.chance(0.3)) sim.time.after(random.next() * 3000, () => timeout.abort());
        return sim.call("pool fill", (node) => node.pods.pool.fill(timeout.signal));
      }
      case "drain":
        return sim.call("pool drain", async (node) => {
          await node.pods.pool.drain();
        });
      case "image":
        sim.note("the image is replaced");
        machines.images++;
    }
  }

  #spec(): PodSpec {
    const { random } = this.#sim.world;
    const interfaces = Array.from({ length: 1 + random.below(3) }, () => ({
      network: random.weighted({ default: 6, n1: 1, n2: 1 }) as NetworkName,
      ...(random.chance(0.2) ? { addresses: [`10.9.0.${random.below(17)}` as Ip] } : {}),
    }));
    return {
      ...(random.chance(0.6) ? { name: random.pick(names) } : {}),
      labels: random.chance(0.5) ? { role: random.pick(["web", "db"]) } : {},
      // A size of which none waits, too.
      resources: { vcpu: 1, memoryMib: this.#hasPool && random.chance(0.1) ? 256 : 128 },
      boot: { cmdline: "", disks: [] },
      interfaces,
      routes: [],
    };
  }

  #create(): void {
    const sim = this.#sim;
    const { random } = sim.world;
    const requestId = random.chance(0.3) ? random.pick(requestIds) : undefined;
    // A repeated request means the same pod, but for a slip of its client.
    const spec = requestId === undefined || random.chance(0.05) ? this.#spec() : specOf(requestId);
    const asked: CreateSpec = {
      spec,
      ...(requestId === undefined ? {} : { requestId }),
      planOnly: false,
      ...(random.chance(0.2) ? { timeoutMs: 1000 + random.below(5000) } : {}),
    };
    const timeout = new AbortController();
    if (random.chance(0.2)) sim.time.after(random.next() * 3000, () => timeout.abort());
    const what = `create ${spec.name ?? ""} ${requestId ?? ""}`;
    sim.call(what, async (node) => {
      const progress = { started: () => {}, finished: () => {} };
      const row = await node.pods.create(asked, { signal: timeout.signal, progress });
      // A delete may have come between the commit and this answer.
      if (!sim.deleted.has(row.id) && !this.#deleting.has(row.id)) sim.promised.add(row.id);
      if (requestId === undefined) return;
      const before = sim.answered.get(requestId);
      if (before !== undefined && before !== row.id && !this.#deleting.has(before))
        sim.violated(`request ${requestId} made ${before} and ${row.id}`);
      sim.answered.set(requestId, row.id);
    });
  }

  /** Pods whose delete was asked for. */
  readonly #deleting = new Set<string>();

  #someone(): string | undefined {
    const { node, world } = this.#sim;
    const rows = node?.pods.list() ?? [];
    return rows.length === 0 ? undefined : world.random.pick(rows).id;
  }

  #delete(): void {
    const sim = this.#sim;
    const id = this.#someone();
    if (id === undefined) return;
    const force = sim.world.random.chance(0.3);
    this.#deleting.add(id);
    if (force) sim.forced.add(id);
    sim.promised.delete(id);
    sim.call(`delete ${id}${force ? " by force" : ""}`, async (node) => {
      await node.pods.delete(id, { force });
      sim.deleted.add(id);
      if (node.records.get(id as never) !== undefined) sim.violated(`deleted pod ${id} is there`);
    });
  }

  #change(): void {
    const id = this.#someone();
    if (id !== undefined) this.#changes.pod(id);
  }

  #start(): void {
    const sim = this.#sim;
    const id = this.#someone();
    if (id === undefined) return;
    sim.call(`start ${id}`, async (node) => {
      const progress = { started: () => {}, finished: () => {} };
      await node.pods.start(id, { signal: new AbortController().signal, progress });
    });
  }

  #machine(): void {
    const sim = this.#sim;
    const { machines, random } = sim.world;
    const all = [...machines.all];
    if (all.length === 0) return;
    const machine = random.pick(all);
    const fate = random.weighted({
      end: 3,
      restart: 2,
      channel: 2,
      deaf: 1,
      powerOff: 1,
      eject: 1,
    });
    sim.note(`machine ${machine.plan.podId}: ${fate}`);
    fates[fate](machine, sim);
  }

  #administrator(): void {
    const sim = this.#sim;
    const { kernel, random, variant, config } = sim.world;
    const { links } = kernel;
    const bridge = links.find(config.network.bridge);
    const taps = [...links.all.values()].filter(
      ({ kind, name }) => kind === "tun" && name !== "vpn0",
    );
    const operation = random.weighted({
      flush: 2,
      forward: 2,
      bridge: 1,
      down: 1,
      address: 1,
      port: 2,
      rule: 2,
      policy: 2,
      service: 2,
      container: 3,
    });
    // What is empty and not remembered is refused, not repaired.
    if (operation === "flush" && sim.lost) return;
    sim.note(`administrator: ${operation}`);
    if (operation === "container") this.#containers.disturb();
    if (operation === "flush") kernel.iptables[variant].flush();
    if (operation === "flush" && kernel.nftables.exists)
      kernel.nftables.disturb("delete table inet podnet");
    if (operation === "flush" && kernel.nftables.names.includes("bridge podnet"))
      kernel.nftables.disturb("delete table bridge podnet");
    if (operation === "rule" && kernel.nftables.names.includes("inet podnet_guard"))
      kernel.nftables.disturb("flush chain inet podnet_guard metadata");
    if (operation === "rule" && kernel.nftables.exists)
      kernel.nftables.disturb("add rule inet podnet forward accept");
    if (operation === "policy") this.#spoilPolicies();
    if (operation === "service") this.#spoilServices();
    if (operation === "forward") kernel.writeSysctl("net.ipv4.ip_forward", "0");
    if (operation === "rule")
      kernel.iptables[variant].restore("*filter\n-I FORWARD 1 -s 10.0.0.0/8 -j RETURN\nCOMMIT\n");
    if (operation === "port" && taps.length > 0)
      links.change(random.pick(taps).index, { master: 0 });
    if (bridge !== undefined) {
      if (operation === "bridge") links.delete(bridge.index);
      if (operation === "down") links.change(bridge.index, { up: false, mtu: 1400 });
      if (operation === "address" && bridge.addresses[0] !== undefined)
        kernel.deleteAddress(bridge.index, bridge.addresses[0].prefix);
    }
    sim.foreignChanged();
    sim.healsSoon();
  }

  /** Others change the table of services. */
  #spoilServices(): void {
    const { random, kernel } = this.#sim.world;
    const { nftables } = kernel;
    const table = "inet podnet_services";
    if (!nftables.names.includes(table)) return;
    const [set, key] = nftables.elements(table)[0]?.split(" | ") ?? [];
    const command = random.pick([
      `delete table ${table}`,
      `flush chain ${table} prerouting`,
      ...(set === undefined ? [] : [`delete element ${table} ${set} { ${key} }`]),
    ]);
    this.#sim.note(`administrator: ${command}`);
    nftables.disturb(command);
  }

  /** Others change the tables of policies. */
  #spoilPolicies(): void {
    const { random, kernel } = this.#sim.world;
    const { nftables } = kernel;
    const table = random.pick(["inet podnet_policy", "bridge podnet_policy"]);
    if (!nftables.names.includes(table)) return;
    const [element] = nftables.elements(table);
    const [set, key] = element?.split(" | ") ?? [];
    const chain = table.startsWith("inet") ? "forward" : "between";
    const command = random.pick([
      `delete table ${table}`,
      `flush chain ${table} ${chain}`,
      `add rule ${table} ${chain} drop`,
      ...(element === undefined ? [] : [`delete element ${table} ${set} { ${key} }`]),
    ]);
    this.#sim.note(`administrator: ${command}`);
    nftables.disturb(command);
  }
}

const specOf = (requestId: string): PodSpec => ({
  name: `by-${requestId}` as PodName,
  labels: {},
  resources: { vcpu: 1, memoryMib: 128 },
  boot: { cmdline: "", disks: [] },
  interfaces: [{ network: "default" as NetworkName }],
  routes: [],
});

const fates: Readonly<
  Record<
    "end" | "restart" | "channel" | "deaf" | "powerOff" | "eject",
    (machine: Machine, sim: Simulation) => void
  >
> = {
  end: (machine, { world }) => world.machines.end(machine, "SIGSEGV"),
  restart: (machine, { world }) => {
    machine.report({ kind: "guest-reset" });
    world.machines.reset(machine);
  },
  channel: (machine, { world }) => world.machines.loseChannel(machine),
  deaf: (machine, { time, world }) => {
    machine.deaf = true;
    time.after(world.random.next() * 100_000, () => {
      machine.deaf = false;
    });
  },
  eject: (machine, { world }) => {
    const [nicId] = machine.nics.keys();
    if (nicId !== undefined) world.machines.eject(machine, nicId);
  },
  powerOff: (machine, { world }) => {
    machine.report({ kind: "guest-shutdown" });
    world.machines.end(machine, "powered off");
  },
};
