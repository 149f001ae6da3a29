import { PodnetError } from "../../../core/errors.ts";
import { hexBytes } from "../../protocol/bytes.ts";
import { command } from "../../protocol/codes.ts";
import {
  type ContainerState,
  type StartContainer,
  containerLimit,
  encodeContainerList,
  parseContainerFile,
  parseContainerId,
  parseContainerVolume,
  parseCreateContainer,
  encodeContainerUsage,
  parseFollowContainer,
  parseLimitContainer,
  parseResizeContainer,
  parseSignalContainer,
  parseStartContainer,
} from "../../protocol/container-messages.ts";
import {
  encodeFollowedMain,
  encodeMainEnded,
  messageLimit,
  type ProcessEnd,
} from "../../protocol/main-process.ts";
import type { Loop } from "../loop.ts";
import { hostname } from "../machine.ts";
import { KeptProcess } from "../main-process/kept-process.ts";
import { type Around, splitUser } from "../main-process/main-process.ts";
import { refuseUnlessProgram } from "../main-process/program.ts";
import { type ExecPlace, environment, noSuch } from "../processes.ts";
import { type Handler, type Reply, done } from "../reply.ts";
import { type Ended, sys } from "../sys.ts";
import { identify } from "../users.ts";
import { ContainerGroup, hasGroups } from "./container-group.ts";
import { ContainerRoot, findDisk, notMounted, openShelf, shelf } from "./container-root.ts";
import { ProcessHolder } from "./process-holder.ts";

/** Bytes of output of a container that are kept for a host that comes back. */
const keptBytes = 256 * 1024;
/** Between two looks for a disk, milliseconds. */
const lookMs = 10;
const kill = 9;
/** How long a killed one may take to end, milliseconds: nothing else is obeyed meanwhile. */
const killedMs = 5000;

interface Container {
  readonly id: string;
  readonly disk: string;
  readonly root: ContainerRoot;
  started: { readonly spec: StartContainer; readonly process: KeptProcess } | undefined;
  /** Called when its first process has ended. */
  readonly waiting: Set<() => void>;
}

/** The containers of this guest. */
export class Containers {
  readonly #loop: Loop;
  readonly #around: Around;
  readonly #loadModules: () => void;
  readonly #all = new Map<string, Container>();
  readonly #holder = new ProcessHolder();

  /** `loadModules`: what squashfs and overlays need of the kernel. */
  constructor(loop: Loop, around: Around, loadModules: () => void) {
    this.#loop = loop;
    this.#around = around;
    this.#loadModules = loadModules;
  }

  /** Whether the tty channel should wait for one of them to read. */
  get clogged(): boolean {
    return this.#processes().some((process) => process.clogged);
  }

  /** Which command leads where. */
  handlers(): [number, Handler][] {
    return [
      [command.createContainer, (payload) => this.#create(payload)],
      [command.containerFile, (payload) => this.#file(payload)],
      [command.containerVolume, (payload) => this.#volume(payload)],
      [command.startContainer, (payload) => this.#start(payload)],
      [command.followContainer, (payload) => this.#follow(payload)],
      [command.signalContainer, (payload) => this.#signal(payload)],
      [command.resizeContainer, (payload) => this.#resize(payload)],
      [command.endContainer, (payload) => this.#remove(payload)],
      [command.listContainers, () => this.#list()],
      [command.limitContainer, (payload) => this.#limit(payload)],
      [command.containerUsage, () => this.#usage()],
    ];
  }

  /** Makes one. The same request again finds what it made. */
  async #create(payload: Uint8Array): Promise<Reply> {
    const request = parseCreateContainer(payload);
    const { id } = request;
    const there = this.#all.get(id);
    if (there !== undefined) {
      if (there.disk === request.disk && there.started === undefined) return done;
      throw refused(`Container "${id}" is there already`, "id");
    }
    if (this.#all.size >= containerLimit)
      throw refused(`There are ${containerLimit} containers already`, "id");
    try {
      const disk = await this.#awaitDisk(request.disk, request.waitMs);
      this.#loadModules();
      openShelf();
      const root = new ContainerRoot(id);
      // Of an agent that has started anew.
      root.remove();
      root.make(disk, request);
      this.#all.set(id, { id, disk: request.disk, root, started: undefined, waiting: new Set() });
      return done;
    } catch (thrown) {
      throw notMounted(request.disk, thrown);
    }
  }

  /** Lays a file into one that has not started yet. */
  #file(payload: Uint8Array): Reply {
    const file = parseContainerFile(payload);
    this.#fresh(file.id).root.place(file);
    return done;
  }

  /** Lays a shared directory into one that has not started yet. */
  #volume(payload: Uint8Array): Reply {
    const volume = parseContainerVolume(payload);
    this.#fresh(volume.id).root.share(volume);
    return done;
  }

  #fresh(id: string): Container {
    const container = this.#find(id);
    if (container.started === undefined) return container;
    throw refused(`Container "${id}" has started already`, "id");
  }

  /** Starts it. Refuses with `ENOENT` or `EACCES` what is no program. */
  #start(payload: Uint8Array): Reply {
    const spec = parseStartContainer(payload);
    const container = this.#find(spec.id);
    if (container.started !== undefined) {
      if (container.started.process.end === undefined) return done;
      throw refused(`Container "${spec.id}" has ended`, "id");
    }
    const { root } = container;
    const { groups, ...identity } = identify(
      { ...splitUser(spec.user), additionalGroups: [] },
      root.accounts,
    );
    root.makeDirectories(spec.workdir);
    const { args, terminal, stdin, workdir: directory, noNewPrivileges, capabilities } = spec;
    const env = containerEnvironment(spec, identity.home);
    refuseUnlessProgram(args[0] ?? "", env, directory, (path) => root.mode(path));
    root.seal();
    if (spec.readOnly) root.makeReadOnly();
    const group = this.#groupOf(spec.id);
    group?.make();
    if (spec.limits !== undefined) group?.limit(spec.limits);
    const { maskedPaths, readOnlyPaths } = spec;
    const spawned = sys.spawn({
      args,
      env,
      directory,
      ...identity,
      groups: [...new Set([...groups, ...spec.groups])],
      terminal,
      confinement: {
        place: {
          kind: "first",
          among: this.#processesOf(spec),
          root: root.path,
          shelf,
          maskedPaths,
          readOnlyPaths,
        },
        capabilities,
        noNewPrivileges,
        group: group?.door,
        ...filterOf(spec),
      },
    });
    const { inputTaken, streams, report } = this.#around;
    const process = new KeptProcess(this.#loop, {
      spawned,
      terminal,
      stdin,
      keptBytes,
      streams: streams(),
      inputTaken,
      ended: (at, end) =>
        report(
          command.containerEnded,
          encodeMainEnded({ id: spec.id, at, end: this.#lastOf(container, spec, end) }),
        ),
    });
    root.mark(spawned.pid);
    container.started = { spec, process };
    process.resume();
    return done;
  }

  /** Sends the output to these streams from now on, and after all of it the container's end. */
  #follow(payload: Uint8Array): Reply {
    const { id, stdout, stderr, from } = parseFollowContainer(payload);
    const process = this.#started(id);
    const at = process.follow(stdout, stderr, from);
    return { payload: encodeFollowedMain({ id, at }), after: () => process.resume() };
  }

  #signal(payload: Uint8Array): Reply {
    const { id, signal } = parseSignalContainer(payload);
    this.#started(id).signal(signal);
    return done;
  }

  #resize(payload: Uint8Array): Reply {
    const { id, rows, columns } = parseResizeContainer(payload);
    this.#started(id).resize(rows, columns);
    return done;
  }

  /**
   * Removes one: what runs in it is killed, and nothing of it is left. An absent one is removed.
   * Without a disk in use its device can be taken out.
   */
  async #remove(payload: Uint8Array): Promise<Reply> {
    const id = parseContainerId(payload);
    const container = this.#all.get(id);
    const process = container?.started?.process;
    if (container !== undefined && process !== undefined && process.end === undefined) {
      // With its first process all of its processes end.
      process.signal(kill);
      if (!(await this.#endWithin(container, killedMs)))
        throw refused(`Container "${id}" was killed, and does not end`, "id");
    }
    // Otherwise what is mounted here would keep its disk for a moment more.
    const until = sys.monotonic() + killedMs;
    while (this.#groupOf(id)?.isEmpty === false && sys.monotonic() < until)
      await this.#loop.sleep(lookMs);
    new ContainerRoot(id).remove();
    this.#groupOf(id)?.remove();
    this.#all.delete(id);
    return done;
  }

  /** A process in whose process namespace it is to be; undefined: in none that is there. */
  #processesOf({ id, processes }: StartContainer): number | undefined {
    if (processes === undefined) return undefined;
    // Without a process namespace of its own its processes end by their group.
    if (this.#groupOf(id) === undefined)
      throw refused("The kernel has no control groups: processes cannot be shared", "processes");
    if (processes.of === "pod") return this.#holder.pid;
    const { started } = this.#find(processes.id);
    if (started !== undefined && started.process.end === undefined) return started.process.pid;
    throw refused(`Container "${processes.id}" does not run`, "processes");
  }

  /** Whether its first process ends in time: one that waits for a disk may not. */
  #endWithin({ waiting }: Container, ms: number): Promise<boolean> {
    return new Promise((resolve) => {
      const stop = this.#loop.after(ms, () => resolve(false));
      waiting.add(() => {
        stop();
        resolve(true);
      });
    });
  }

  /** Changes what one may use while it runs. */
  #limit(payload: Uint8Array): Reply {
    const { id, limits } = parseLimitContainer(payload);
    this.#started(id);
    this.#groupOf(id)?.limit(limits);
    return done;
  }

  /** What each uses, also after its end. */
  #usage(): Reply {
    const list = Array.from(this.#all.values()).flatMap(({ id, started }) => {
      const group = this.#groupOf(id);
      return started === undefined || group === undefined ? [] : [{ id, ...group.usage }];
    });
    return { payload: encodeContainerUsage(list) };
  }

  /**
   * Also whether that was for want of memory. A kill of an earlier program of it says nothing about
   * an end that was not by SIGKILL.
   */
  #endOf(id: string, end: ProcessEnd): ProcessEnd {
    const wasKilled = "signal" in end ? end.signal === kill : end.code === 128 + kill;
    if (!wasKilled || (this.#groupOf(id)?.usage.oomKills ?? 0) === 0) return end;
    return { ...end, outOfMemory: true };
  }

  /** Its end with its message. */
  #lastOf({ id, root }: Container, { messagePath }: StartContainer, end: ProcessEnd): ProcessEnd {
    const known = this.#endOf(id, end);
    if (messagePath === undefined) return known;
    const message = root.beginning(messagePath, messageLimit);
    return message.length === 0 ? known : { ...known, message };
  }

  #stateOf(id: string, process: KeptProcess | undefined): ContainerState {
    if (process === undefined) return { kind: "created" };
    const { end } = process;
    return end === undefined ? { kind: "running" } : { kind: "ended", end: this.#endOf(id, end) };
  }

  #groupOf(id: string): ContainerGroup | undefined {
    return hasGroups() ? new ContainerGroup(id) : undefined;
  }

  #list(): Reply {
    const list = Array.from(this.#all.values(), ({ id, started }) => ({
      id,
      state: this.#stateOf(id, started?.process),
      at: started?.process.written ?? 0,
    }));
    return { payload: encodeContainerList(list) };
  }

  /** Where a program runs that is started in a container; undefined when it does not run. */
  placeOf(id: string): ExecPlace | undefined {
    const container = this.#all.get(id);
    const started = container?.started;
    if (container === undefined || started === undefined || started.process.end !== undefined)
      return undefined;
    const { capabilities, noNewPrivileges } = started.spec;
    const group = this.#groupOf(id)?.door;
    const place = { kind: "joined", pid: started.process.pid } as const;
    return {
      accounts: container.root.accounts,
      confinement: { place, capabilities, noNewPrivileges, group, ...filterOf(started.spec) },
      envs: started.spec.env,
      groups: started.spec.groups,
      directory: started.spec.workdir,
    };
  }

  /** Data from the host; false when the stream is another's. */
  input(stream: bigint, data: Uint8Array): boolean {
    return this.#processes().some((process) => process.input(stream, data));
  }

  /** A process that EXECCMD did not start has ended. */
  ended(child: Ended): void {
    this.#holder.ended(child.pid);
    for (const { id, started, waiting } of this.#all.values()) {
      if (started?.process.pid !== child.pid || started.process.end !== undefined) continue;
      // In a process namespace of its own the kernel has done so.
      if (started.spec.processes !== undefined) this.#groupOf(id)?.kill();
      started.process.ended(child);
      for (const wake of waiting) wake();
      waiting.clear();
    }
  }

  /** The host is gone. */
  unfollow(): void {
    for (const process of this.#processes()) process.unfollow();
  }

  /** Goes on with what waited for the host. */
  resume(): void {
    for (const process of this.#processes()) process.resume();
  }

  #processes(): KeptProcess[] {
    return Array.from(this.#all.values()).flatMap(({ started }) => started?.process ?? []);
  }

  async #awaitDisk(serial: string, waitMs: number): Promise<string> {
    const until = sys.monotonic() + waitMs;
    for (;;) {
      const found = findDisk(serial);
      if (found !== undefined) return found;
      if (sys.monotonic() >= until)
        throw new PodnetError("INVALID_ARGUMENT", `There is no disk "${serial}"`, {
          field: "disk",
          details: { errno: "ENODEV" },
        });
      await this.#loop.sleep(lookMs);
    }
  }

  #find(id: string): Container {
    const container = this.#all.get(id);
    if (container !== undefined) return container;
    throw noSuch("container");
  }

  #started(id: string): KeptProcess {
    const { started } = this.#find(id);
    if (started !== undefined) return started.process;
    throw refused(`Container "${id}" has not started`, "id");
  }
}

const filterOf = ({ filter }: StartContainer) =>
  filter === undefined ? {} : { filter: hexBytes(filter) };

const containerEnvironment = (
  { terminal, env }: Pick<StartContainer, "terminal" | "env">,
  home: string,
): string[] =>
  environment({ terminal, envs: [{ env: "HOSTNAME", value: hostname() }, ...env] }, home);

const refused = (message: string, field: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, { field });
