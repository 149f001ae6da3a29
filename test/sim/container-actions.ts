import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pendingName, renderPending } from "../../cni/protocol/pending.ts";
import {
  type AttachmentRow,
  isDamagedAttachment,
  type AttachmentName,
} from "../../daemon/containers/attachment-rows.ts";
import { askCni, type CniCall, envOf } from "./container-call.ts";
import { silenceViolations } from "./container-invariants.ts";
import { attachmentIfb } from "../../network/model/ownership.ts";
import type { LiveNode } from "./daemon-life.ts";
import { calm } from "./process.ts";
import type { Simulation } from "./simulation.ts";

const containers = ["c1", "c2", "c3", "c4"];
/** The runtime's network, and another of its that is none of these containers'. */
const config = "podnet";
const otherConfig = "other";
/**
 * Milliseconds within which nothing is left of a container whose DEL was answered by a daemon that
 * nothing hinders.
 */
const endMs = 10_000;

/** What container runtimes ask for, and what becomes of their containers. */
export class ContainerActions {
  readonly #sim: Simulation;

  constructor(sim: Simulation) {
    this.#sim = sim;
  }

  any(): void {
    const { random } = this.#sim.world;
    switch (
      random.weighted({
        add: 8,
        delete: 4,
        together: 2,
        collect: 1,
        check: 1,
        ends: 1.5,
      })
    ) {
      case "add":
        return this.#add(this.#name());
      case "delete":
        return this.#delete(this.#name());
      case "together":
        return this.#together(this.#name());
      case "collect":
        return this.#collect();
      case "check":
        return this.#check();
      case "ends":
        return this.#containerEnds(this.#name().containerId);
    }
  }

  #name(): AttachmentName {
    const { random } = this.#sim.world;
    return {
      containerId: random.pick(containers),
      ifName: random.chance(0.85) ? "eth0" : "net0",
    };
  }

  /**
   * A runtime that gives up on one call and makes the next, or makes one twice: CNI allows neither,
   * and both happen.
   */
  #together(name: AttachmentName): void {
    const { time, world } = this.#sim;
    const { random } = world;
    for (let calls = 2 + random.below(2); calls > 0; calls--) {
      const isAdd = random.chance(0.6);
      time.after(random.next() * 80, () => (isAdd ? this.#add(name) : this.#delete(name)));
    }
  }

  #add(name: AttachmentName): void {
    const sim = this.#sim;
    const { world, book } = sim;
    const { random } = world;
    const netns = world.containers.ensure(name.containerId);
    sim.foreignChanged();
    const configuration = this.#configuration();
    const ends = book.ends(name);
    const timeout = new AbortController();
    if (random.chance(0.1)) sim.time.after(random.next() * 300, () => timeout.abort());
    const call: CniCall = { command: "ADD", name, netns, configuration };
    sim.call(`ADD ${textOf(call)}`, async (node) => {
      const answer = await askCni(node, call, timeout.signal);
      const row = node.attachments.named(name);
      // A DEL may have come between the commit and this answer.
      if (row?.state !== "ready") return;
      const checkWith = { ...configuration, prevResult: JSON.parse(answer) as unknown };
      book.promise({ name, id: row.id, checkWith }, ends);
    });
  }

  #configuration(): CniCall["configuration"] {
    const { random } = this.#sim.world;
    const rates = () => ({
      ...(random.chance(0.7) ? { ingressRate: 10_000_000, ingressBurst: 800_000 } : {}),
      ...(random.chance(0.7) ? { egressRate: 20_000_000, egressBurst: 800_000 } : {}),
    });
    const port = () => ({
      hostPort: 8000 + random.below(3),
      containerPort: 80,
      protocol: random.pick(["tcp", "tcp", "udp"]),
      ...(random.chance(0.5) ? { hostIP: "0.0.0.0" } : {}),
    });
    return {
      cniVersion: "1.1.0",
      name: config,
      type: "podnet-cni",
      network: random.weighted({ default: 6, n1: 1, n2: 1 }),
      runtimeConfig: {
        ...(random.chance(0.25) ? { portMappings: [port()] } : {}),
        ...(random.chance(0.25) ? { bandwidth: rates() } : {}),
        ...(random.chance(0.2) ? { ips: [`10.9.0.${random.below(17)}`] } : {}),
      },
    };
  }

  #delete(name: AttachmentName): void {
    const sim = this.#sim;
    const { world, book, node } = sim;
    const { random } = world;
    const foreign = random.chance(0.05);
    if (random.chance(0.15)) this.#containerEnds(name.containerId);
    const netns = random.chance(0.8) ? world.containers.pathOf(name.containerId) : undefined;
    const configuration = {
      cniVersion: random.pick(["1.0.0", "1.1.0"]),
      name: foreign ? otherConfig : config,
      type: "podnet-cni",
    };
    const call: CniCall = { command: "DEL", name, netns, configuration };
    // Either podnetd does not listen, or it is too busy to.
    if (node === undefined || random.chance(0.15)) return this.#writeDown(name, call);
    if (!foreign) book.end(name);
    const row = node.attachments.named(name);
    sim.call(`DEL ${textOf(call)}`, async (asked) => {
      await askCni(asked, call);
      if (!foreign && row !== undefined && !isDamagedAttachment(row)) this.#hasEnded(row, asked);
    });
  }

  /** Nothing passes any more; soon nothing is left. */
  #hasEnded(row: AttachmentRow, node: LiveNode): void {
    const sim = this.#sim;
    const { weather, life, world } = sim;
    sim.book.ended.add(row.id);
    for (const found of silenceViolations(world, node.attachments.fragmentOf(row.plan)))
      sim.violated(found);
    if (weather !== calm) return;
    sim.time.after(endMs, () => {
      if (sim.life !== life || sim.node !== node || sim.weather !== calm) return;
      if (node.attachments.list().some(({ id }) => id === row.id))
        sim.violated(`attachment ${row.id} is not forgotten`);
      const { hostLink } = node.attachments.fragmentOf(row.plan);
      for (const link of [hostLink, attachmentIfb(row.id)])
        if (world.kernel.links.find(link) !== undefined)
          sim.violated(`link ${link} of a DEL long answered is left`);
    });
  }

  /** What the plugin does when it is not served: the daemon does it when it can. */
  #writeDown(name: AttachmentName, call: CniCall): void {
    const sim = this.#sim;
    const { time, world, book } = sim;
    if (call.configuration.name !== config) return;
    const promised = book.promised.get(`${name.containerId} ${name.ifName}`);
    const path = join(world.config.cni.pendingDir, pendingName(name.containerId, name.ifName));
    if (existsSync(path)) return;
    sim.note(`DEL ${textOf(call)} is written down`);
    const stdin = Buffer.from(JSON.stringify(call.configuration)).toString("base64");
    const moment = { boot: world.bootId, us: Math.floor(time.monotonicMs * 1000) };
    writeFileSync(path, renderPending(envOf(call), stdin, time.wallMs, moment));
    book.end(name);
    if (promised !== undefined) book.ended.add(promised.id);
  }

  #collect(): void {
    const sim = this.#sim;
    const { world, book, node } = sim;
    const kept = [...book.promised.values()]
      .map(({ name }) => name)
      .filter(() => world.random.chance(0.8));
    const isKept = (name: AttachmentName): boolean =>
      kept.some(
        ({ containerId, ifName }) => containerId === name.containerId && ifName === name.ifName,
      );
    for (const containerId of containers)
      for (const ifName of ["eth0", "net0"])
        if (!isKept({ containerId, ifName })) book.end({ containerId, ifName });
    const rows = node?.attachments.list().filter((row) => !isKept(row)) ?? [];
    const call: CniCall = {
      command: "GC",
      configuration: {
        cniVersion: "1.1.0",
        name: config,
        type: "podnet-cni",
        "cni.dev/valid-attachments": kept.map(({ containerId, ifName }) => ({
          containerID: containerId,
          ifname: ifName,
        })),
      },
    };
    sim.call(`GC but ${kept.map(({ containerId }) => containerId).join()}`, async (asked) => {
      await askCni(asked, call);
      for (const row of rows) this.#hasEnded(row, asked);
    });
  }

  #check(): void {
    const sim = this.#sim;
    const all = [...sim.book.promised.values()];
    if (all.length === 0) return;
    const { name, checkWith } = sim.world.random.pick(all);
    const netns = sim.world.containers.pathOf(name.containerId);
    const configuration = checkWith as CniCall["configuration"];
    const call: CniCall = { command: "CHECK", name, netns, configuration };
    sim.call(`CHECK ${textOf(call)}`, async (node) => {
      await askCni(node, call);
    });
  }

  /** Others take away what a container has: podnetd puts it back. */
  disturb(): void {
    const { world, book } = this.#sim;
    const { random, kernel, containers: all } = world;
    const promised = [...book.promised.values()];
    if (promised.length === 0) return;
    const { name, id } = random.pick(promised);
    const host = kernel.links.find(`pc${id}`);
    const guest = all.insideOf(name.containerId)?.links.find(name.ifName);
    if (host === undefined || guest === undefined) return;
    const operation = random.pick([
      "delete",
      "master",
      "down",
      "inside",
      "route",
      "rate",
      "filters",
    ]);
    this.#sim.note(`others: ${operation} of ${host.name}`);
    const { links } = kernel;
    const inside = all.insideOf(name.containerId)?.links;
    if (operation === "delete") links.delete(host.index);
    if (operation === "master") links.change(host.index, { master: 0 });
    if (operation === "down") links.change(host.index, { up: false });
    if (operation === "inside") inside?.change(guest.index, { up: false, mtu: 1300 });
    if (operation === "route") {
      // While later plugins may run, this may be theirs.
      const row = this.#sim.node?.attachments.named(name);
      const plan = row === undefined || isDamagedAttachment(row) ? undefined : row.plan;
      if (plan === undefined || plan.awaitsPlugins === true) book.withoutRoutes.add(id);
      guest.routes = [];
    }
    if (operation === "rate") host.queue = undefined;
    if (operation === "filters") host.filters = undefined;
  }

  /** Its processes have ended, and its namespace with them, whatever the runtime does about it. */
  #containerEnds(containerId: string): void {
    const sim = this.#sim;
    const { world, book } = sim;
    if (world.containers.insideOf(containerId) === undefined) return;
    sim.note(`container ${containerId} ends`);
    for (const ifName of ["eth0", "net0"]) book.end({ containerId, ifName });
    world.containers.end(containerId, world.random.chance(0.3));
    sim.foreignChanged();
  }
}

const textOf = ({ name, configuration }: CniCall): string =>
  `${name?.containerId} ${name?.ifName} ${configuration.name} ${JSON.stringify(configuration["runtimeConfig"] ?? {})}`;
