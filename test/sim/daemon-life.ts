import { PendingDels } from "../../daemon/containers/cni/pending-dels.ts";
import { LoopTurns } from "../../linux/loop-turns.ts";
import { DriftWatch } from "../../daemon/drift/drift.ts";
import type { Log } from "../../linux/log.ts";
import { watchEffects } from "../../core/effect.ts";
import { type Node, type NodeParts, openNode } from "../../daemon/main/node.ts";
import { Database } from "../../daemon/store/database.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import type { watchRtnetlink } from "../../linux/netlink/rtnetlink-events.ts";
import { driverDoor } from "./driver-door.ts";
import { guestDoor } from "./guest-door.ts";
import { HostSockets } from "./host-sockets.ts";
import { attachmentDoor } from "./kernel/attachment-door.ts";
import { kernelDoor, tapDoor } from "./kernel/door.ts";
import { Process, type Weather } from "./process.ts";
import type { World } from "./world.ts";

/** A fault put in on purpose, by which the simulation shows that it finds faults. */
export type Plant = (parts: NodeParts) => NodeParts;

/** One life of the daemon: its process, and what it has opened once it has. */
export interface Life {
  readonly process: Process;
  readonly db: Database;
  readonly sockets: HostSockets;
  /**
   * Resolves when the node is ready; rejects when it does not start, stays open when it is killed
   * before.
   */
  readonly node: Promise<LiveNode>;
}

/** The node, with what keeps its host as planned. */
export interface LiveNode extends Node {
  readonly drift: DriftWatch;
}

export interface LifeOptions {
  readonly world: World;
  readonly trace: (line: string) => void;
  readonly weather: () => Weather;
  /** Called after every commit. */
  readonly committed: () => void;
  /** Called once when it is killed. */
  readonly killed: () => void;
  /** A planted fault: what it makes of what the node stands on. */
  readonly plant?: Plant | undefined;
}

/** Starts the daemon: everything from the rows upwards is the real one. */
export function startLife(options: LifeOptions): Life {
  const { world, trace, weather, committed, killed, plant } = options;
  const { time, random, machines, config, kernel, containers } = world;
  const taps = new Set<number>();
  const sockets = new HostSockets();
  const state: { db?: Database } = {};
  const process = new Process({
    time,
    random,
    trace,
    weather,
    // Its descriptors, and the transaction it was in.
    ended: () => {
      for (const fd of taps) kernel.links.closeDescriptor(fd);
      containers.namespaces.closeAll();
      closeQuietly(() => state.db?.close());
    },
    killed,
  });
  watchEffects({
    at: ({ boundary, what }, side) => {
      // (A file has no door of its own.)
      if (boundary === "file" && what.endsWith(" parked")) {
        if (side === "before") process.now(`file ${what}`, () => {});
        else process.mayDie();
      }
      if (boundary !== "commit" || state.db === undefined || !process.alive) return;
      if (side === "before") process.now(`commit ${what}`, () => {});
      else {
        committed();
        process.mayDie();
      }
    },
    atAsync: () => Promise.resolve(),
  });
  const db = Database.openIn(config.stateDir, undefined, {
    // The kernel's own call would end in its own time.
    flushFile: () => new Promise((resolve) => void setTimeout(resolve, 1)),
  });
  state.db = db;
  const clock = { now: () => time.wallMs, monotonic: () => time.monotonicMs };
  const parts: NodeParts = {
    config,
    db,
    driver: driverDoor(machines, process),
    clock,
    turns: new LoopTurns(clock),
    bootId: world.bootId,
    moment: () => ({ boot: world.bootId, us: Math.floor(time.monotonicMs * 1000) }),
    kernel: kernelDoor(kernel, process, world.bootId),
    openTap: (name) => tapDoor(kernel, process, name, taps),
    openGuest: (options) => guestDoor(options, { machines, process, time, random }),
    hold: (port) => sockets.hold(port, process),
    listen: ({ link }) =>
      process.later(`socket answer names on ${link}`, () => ({
        isThere: () => true,
        close: () => {},
      })),
    attachmentKernel: attachmentDoor(kernel, containers.namespaces, process),
    randomBytes: (count) => random.bytes(count),
    logOf: () => tracedLog(trace),
  };
  return {
    process,
    db,
    sockets,
    node: openLive(plant?.(parts) ?? parts, options, process),
  };
}

/** Between looks at what plugins wrote down, milliseconds: as watch-pending.ts has it. */
const pendingMs = 2000;

/** As daemon.ts does it. */
async function openLive(
  parts: NodeParts,
  options: LifeOptions,
  process: Process,
): Promise<LiveNode> {
  const node = await openNode(parts);
  const { world } = options;
  const { clock } = parts;
  const watch: typeof watchRtnetlink = (_groups, listener) => {
    const { watchers } = world.kernel.links;
    const report = (event: RtnetlinkEvent): void => process.hears(() => listener(event));
    watchers.add(report);
    const close = (): boolean => watchers.delete(report);
    return { losses: 0, close, [Symbol.dispose]: close };
  };
  const log = parts.logOf("drift");
  const { driftMs: everyMs } = parts.config;
  const drift = DriftWatch.open({ ...node, clock, log, everyMs, watch });
  const { pendingDir: directory } = parts.config.cni;
  const { attachments } = node;
  const pending = new PendingDels({
    directory,
    attachments,
    log: parts.logOf("cni"),
    bootId: parts.bootId,
  });
  await pending.carryOut();
  // (What the kernel reports the directory would come in real time.)
  const looks = setInterval(() => void pending.carryOut(), pendingMs);
  return {
    ...node,
    drift,
    [Symbol.asyncDispose]: async () => {
      clearInterval(looks);
      await drift[Symbol.asyncDispose]();
      await node[Symbol.asyncDispose]();
    },
  };
}

function closeQuietly(body: () => void): void {
  try {
    body();
  } catch {}
}

function tracedLog(trace: (line: string) => void): Log {
  const line = (
    fields: { readonly pod_id?: string; readonly err?: unknown },
    text: string,
  ): void => {
    const { err } = fields;
    const error = err instanceof Error ? `: ${err.message}` : "";
    trace(`log ${fields.pod_id ?? ""} ${text}${error}`);
  };
  const log: Log = { debug: () => {}, info: line, warn: line, error: line, with: () => log };
  return log;
}
