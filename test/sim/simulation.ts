import { createHash } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { isPodnetError } from "../../core/errors.ts";
import { listNetworks } from "../../daemon/networks/store.ts";
import type { PodRow } from "../../daemon/pods/store/pod-row.ts";
import { networkMark, podRuleMark } from "../../network/model/ownership.ts";
import { Actions } from "./actions.ts";
import { policyViolations } from "./policy-actions.ts";
import { serviceViolations } from "./service-actions.ts";
import { PolicyWatch } from "./policy-watch.ts";
import { ContainerBook } from "./container-book.ts";
import {
  attachmentLeftovers,
  attachmentViolations,
  checkViolations,
  pendingViolations,
  socketViolations,
} from "./container-invariants.ts";
import { type Life, type LiveNode, type Plant, startLife } from "./daemon-life.ts";
import {
  booksViolations,
  isPoolAtRest,
  type Leftover,
  leftovers,
  mayFollow,
  networkViolations,
  podViolations,
  poolViolations,
  remains,
} from "./invariants.ts";
import { calm, type Weather } from "./process.ts";
import type { VirtualTime } from "./time.ts";
import { foreignState, World } from "./world.ts";

export interface Outcome {
  readonly seed: number;
  /** Calls that left the daemon, and what clients and others did. */
  readonly steps: number;
  /** Always equal for equal seeds. */
  readonly hash: string;
  readonly trace: readonly string[];
  /** The first thing that was not as it has to be. */
  readonly violation: string | undefined;
}

/** Ends a history: something is not as promised. */
class Violation extends Error {
  override readonly name = "Violation";
}

/** Milliseconds after which policies have followed pods, where nothing is in the way. */
const soonMs = 1000;

const fair: Weather = { error: 0.004, hang: 0.002, crash: 0.001 };
const foul: Weather = { error: 0.05, hang: 0.02, crash: 0.004 };
const deadly: Weather = { error: 0, hang: 0, crash: 0.02 };

/**
 * One history: a host, a daemon that lives and dies on it, clients, an administrator, and faults;
 * drawn from a seed.
 */
export class Simulation {
  readonly seed: number;
  readonly world: World;
  readonly time: VirtualTime;
  readonly trace: string[] = [];
  node: LiveNode | undefined;
  weather: Weather = calm;
  /** What container runtimes were answered. */
  readonly book = new ContainerBook();
  /** Calls of clients that are not answered yet. */
  readonly pending = new Set<Promise<void>>();
  /** Pods whose create was answered and whose delete was not asked for. */
  readonly promised = new Set<string>();
  readonly deleted = new Set<string>();
  /** Networks whose create was answered and whose delete was not asked for. */
  readonly promisedNetworks = new Set<string>();
  /** What was answered about policies last: their documents; undefined for one that is deleted. */
  readonly promisedPolicies = new Map<string, string | undefined>();
  /** As `promisedPolicies`, of services. */
  readonly promisedServices = new Map<string, string | undefined>();
  /** Pods that were deleted by force. */
  readonly forced = new Set<string>();
  /** By request id: the pod that the first answer named. */
  readonly answered = new Map<string, string>();
  foreign: string;
  life: Life | undefined;
  #states = new Map<string, PodRow["state"]>();
  readonly #plant: Plant | undefined;
  readonly #policies: PolicyWatch;
  /** The weather of this phase, of which something may be in the way after its end, too. */
  #phase: Weather = calm;
  /** When rows were last changed. */
  #changed = 0;
  #violation: string | undefined;
  #failedStarts = 0;
  /**
   * With its state the daemon forgot what forwarding was before, and that an empty chain is its
   * own.
   */
  lost = false;
  /** How often others have changed what is ours. */
  #changes = 0;

  /** `flags` take the place of the configuration that is drawn. */
  constructor(
    seed: number,
    time: VirtualTime,
    plant?: Plant,
    flags: Readonly<Record<string, string>> = {},
  ) {
    this.seed = seed;
    this.time = time;
    this.world = new World(seed, time, flags);
    this.foreign = foreignState(this.world);
    this.#plant = plant;
    this.#policies = new PolicyWatch(this.world);
  }

  /** Runs a history to its end: one that is drawn, or what `history` does. */
  async run(history = () => this.#drawn()): Promise<Outcome> {
    using _world = this.world;
    try {
      this.#start();
      await this.converged();
      await history();
      await this.#end();
    } catch (thrown) {
      if (!(thrown instanceof Violation)) this.#violation ??= `thrown: ${stackOf(thrown)}`;
    } finally {
      this.life?.process.exit();
      this.time.dropProgram();
    }
    const hash = createHash("sha256").update(this.trace.join("\n")).digest("hex").slice(0, 16);
    const { seed, trace } = this;
    return { seed, steps: trace.length, hash, trace, violation: this.#violation };
  }

  async #drawn(): Promise<void> {
    const { world } = this;
    const { random } = world;
    const actions = new Actions(this);
    for (let phases = 1 + random.below(3); phases > 0; phases--) {
      this.weather = random.pick([calm, fair, fair, foul, deadly]);
      this.#phase = this.weather;
      world.trouble = random.pick([0, 0.1, 0.4]);
      const lengthMs = random.pick([500, 5000, 30_000]);
      this.note(`phase of ${lengthMs} ms, ${JSON.stringify(this.weather)}`);
      for (let left = 2 + random.below(10); left > 0; left--)
        this.time.after(random.next() * lengthMs, () => actions.any());
      await this.#pass(lengthMs);
      await this.quiet();
    }
  }

  note(line: string): void {
    // (The directory's name is another one each time.)
    const said = line.replaceAll(this.world.directory, "");
    this.trace.push(`${this.time.monotonicMs.toFixed(3).padStart(12)} ${said}`);
  }

  /** Others have changed what is theirs, or what is ours. */
  foreignChanged(): void {
    this.foreign = foreignState(this.world);
    this.#policies.disturbed();
  }

  /** The kernel decides as policies say, unless more is under way, or something is in the way. */
  #policiesInForce(): void {
    const { life, pending, time } = this;
    if (life?.process.alive !== true || this.node === undefined) return;
    if (this.#phase !== calm || pending.size > 0 || time.monotonicMs - this.#changed < soonMs)
      return;
    for (const found of this.#policies.notInForce(life.db)) this.violated(found);
  }

  /** The kernel was changed, by podnetd or by itself: nothing closed opens by it. */
  readonly #kernelChanged = (): void => {
    const { life } = this;
    if (life?.process.alive !== true) return;
    for (const found of this.#policies.opened(life.db)) this.violated(found);
  };

  /** Notes the first violation, which ends the history at the next event. */
  violated(what: string): void {
    if (this.#violation === undefined) this.trace.push(`VIOLATION ${what}`);
    this.#violation ??= what;
  }

  /** A client's call; a daemon that dies meanwhile does not answer. */
  call(what: string, body: (node: LiveNode) => Promise<void>): void {
    const { node } = this;
    if (node === undefined) return this.note(`client ${what}: no daemon`);
    this.note(`client ${what}`);
    const { process } = this.life as Life;
    const call = body(node)
      .then(
        () => process.alive && this.note(`client ${what}: done`),
        (thrown: unknown) => {
          if (!process.alive) return;
          if (!isPodnetError(thrown)) this.violated(`${what} throws ${stackOf(thrown)}`);
          else if (thrown.code === "INTERNAL") this.violated(`${what}: ${stackOf(thrown)}`);
          else this.note(`client ${what}: ${thrown.code} ${thrown.message}`);
        },
      )
      .then(() => {
        this.pending.delete(call);
        if (!process.alive) return;
        this.checkBooks();
        this.time.after(soonMs, () => this.#policiesInForce());
      });
    this.pending.add(call);
  }

  /**
   * Ten seconds after the first change by others all is as planned again, unless the daemon was
   * hindered.
   */
  healsSoon(): void {
    if (this.#changes++ > 0 || this.weather !== calm || this.node === undefined) return;
    const { life } = this;
    const unhealed = (): readonly string[] => {
      const { node } = this;
      const isOver = this.life !== life || life?.process.alive !== true || this.#changes > 1;
      return isOver || node === undefined ? [] : networkViolations(this.world, node);
    };
    this.time.after(10_000, () => {
      if (unhealed().length === 0) return;
      // A change that podnetd has just stored may be under way.
      this.time.after(1000, () => {
        for (const found of unhealed()) this.violated(`not healed: ${found}`);
      });
    });
  }

  checkBooks(): void {
    const life = this.life;
    if (this.node === undefined || life?.process.alive !== true) return;
    for (const found of booksViolations(this.node, life.db)) this.violated(found);
    if (foreignState(this.world) !== this.foreign)
      this.violated(
        `others' network is changed:\n${difference(this.foreign, foreignState(this.world))}`,
      );
  }

  /** SIGKILL, with a restart soon after. */
  kill(): void {
    this.life?.process.kill();
  }

  /**
   * SIGKILL, and the state directory is empty afterwards. An administrator ends the machines, as
   * podnetd would refuse to start alongside them; all else that bears our mark is an orphan and
   * goes.
   */
  loseState(): void {
    // After a flush an empty chain of our name could be foreign: it is left, and the daemon says
    // so and ends.
    if (this.#changes > 0) return;
    this.note("the state is lost");
    this.kill();
    for (const { plan } of this.world.machines.all) this.world.machines.reap(plan.runDir);
    rmSync(this.world.config.stateDir, { recursive: true });
    mkdirSync(this.world.config.stateDir);
    for (const known of [
      this.promisedPolicies,
      this.promisedServices,
      this.promised,
      this.promisedNetworks,
      this.deleted,
      this.answered,
      this.#states,
    ])
      known.clear();
    this.book.clear();
    this.lost = true;
  }

  /** SIGTERM: lets go of everything, and starts again. */
  restart(): void {
    this.call("restart", async (node) => {
      const life = this.life as Life;
      this.node = undefined;
      const graceMs = this.world.random.pick([0, 100, 5000]);
      await Promise.all([node.pods.close(graceMs), node.attachments.close(graceMs)]);
      await node[Symbol.asyncDispose]();
      // Killed as it ended: the next life has been seen to.
      if (!life.process.alive) return;
      life.process.exit();
      this.time.dropProgram();
      this.pending.clear();
      this.#later();
    });
  }

  #start(): void {
    this.note("daemon starts");
    const { weather } = this;
    const changes = this.#changes;
    // (What others take in the middle of a start may end it; the next one finds it gone.)
    const isUndisturbed = (): boolean => weather === calm && changes === this.#changes;
    const { links, nftables } = this.world.kernel;
    links.watchers.add(this.#kernelChanged);
    nftables.watchers.add(this.#kernelChanged);
    try {
      const life = startLife({
        world: this.world,
        trace: (line) => this.note(line),
        weather: () => this.weather,
        committed: () => this.#committed(),
        killed: () => this.#died(),
        plant: this.#plant,
      });
      this.life = life;
      life.node.then(
        (node) => {
          if (!life.process.alive) return;
          this.note("daemon ready");
          this.node = node;
          this.#failedStarts = 0;
          this.checkBooks();
        },
        (thrown: unknown) => {
          if (!life.process.alive) return;
          this.note(`daemon does not start: ${String(thrown)}`);
          life.process.exit();
          if (isUndisturbed()) this.violated(`the daemon does not start: ${stackOf(thrown)}`);
          // The sixth time nothing is in its way: a host where nothing ever works shows nothing.
          if (++this.#failedStarts > 5) this.weather = calm;
          this.time.dropProgram();
          this.#later();
        },
      );
    } catch (thrown) {
      this.note(`daemon dies at once: ${String(thrown)}`);
      this.#later();
    }
  }

  #died(): void {
    this.node = undefined;
    this.pending.clear();
    // What its promises still do in this turn reaches nothing; then its timers go.
    this.time.after(1, () => this.time.dropProgram());
    this.#later();
  }

  #later(): void {
    this.time.after(100 + this.world.random.next() * 1000, () => this.#start());
  }

  async #until(done: () => boolean): Promise<void> {
    await this.time.run(() => this.#violation !== undefined || done());
    if (this.#violation !== undefined) throw new Violation(this.#violation);
  }

  async #pass(ms: number): Promise<void> {
    let over = false;
    this.time.after(ms, () => {
      over = true;
    });
    await this.#until(() => over);
  }

  /** A daemon is there and no caller waits for it. */
  converged(): Promise<void> {
    return this.#until(() => this.node !== undefined && this.pending.size === 0);
  }

  /**
   * Lets everything come to rest, starts the daemon anew, and compares all there is with all that
   * should be.
   */
  async quiet(): Promise<void> {
    const { world } = this;
    this.weather = calm;
    world.trouble = 0;
    for (const machine of world.machines.all) machine.deaf = false;
    await this.converged();
    // Longer than any wait of the program: what goes on after a caller was answered has ended.
    await this.#pass(120_000);
    await this.converged();
    await this.#poolAtRest();
    this.checkBooks();
    this.#checkUnrestarted();
    for (let starts = 1 + world.random.below(2); starts > 0; starts--) {
      if (world.random.chance(0.5)) this.kill();
      else this.restart();
      await this.#until(() => this.node === undefined);
      await this.converged();
      await this.#pass(1000);
      await this.#poolAtRest();
    }
    this.note("quiet");
    this.checkBooks();
    const node = this.node as LiveNode;
    for (const { what } of this.#leftovers(node)) this.violated(what);
    for (const found of [
      ...podViolations(world, node),
      ...poolViolations(world, node),
      ...networkViolations(world, node),
      ...this.#containerViolations(node),
      ...policyViolations(this),
      ...serviceViolations(this, node),
      ...this.#policies.differing((this.life as Life).db),
      ...this.#policies.left((this.life as Life).db),
    ])
      this.violated(found);
    this.#policies.rest((this.life as Life).db);
    await this.#checkContainers(node);
    const there = new Set<string>(node.pods.list().map(({ id }) => id));
    for (const id of this.promised) if (!there.has(id)) this.violated(`pod ${id} is lost`);
    const networks = new Set<string>(node.networks.list().map(({ name }) => name));
    for (const name of this.promisedNetworks)
      if (!networks.has(name)) this.violated(`network ${name} is lost`);
    for (const id of this.deleted)
      if (there.has(id)) this.violated(`pod ${id} was deleted and is there`);
    await this.#until(() => true);
  }

  /** The pool is full, or was drained. */
  #poolAtRest(): Promise<void> {
    return this.#until(() => this.node !== undefined && isPoolAtRest(this.node));
  }

  #containerViolations(node: LiveNode): string[] {
    const { world, book, life, lost } = this;
    return [
      ...attachmentViolations(world, node, book),
      ...attachmentLeftovers(world, node, lost),
      ...pendingViolations(world),
      ...(life === undefined ? [] : socketViolations(life.sockets, node)),
    ];
  }

  /** As their runtimes look at them. */
  async #checkContainers(node: LiveNode): Promise<void> {
    let found: string[] | undefined;
    void checkViolations(this.world, node, this.book).then((all) => {
      found = all;
    });
    await this.#until(() => found !== undefined);
    for (const what of found ?? []) this.violated(what);
  }

  /**
   * A neighbour whose pod's row is gone is unknown to podnetd; the kernel forgets it in time.
   */
  #leftovers(node: LiveNode): Leftover[] {
    const nobodys = (pod: string | undefined): boolean =>
      this.lost || (pod !== undefined && this.forced.has(pod));
    return leftovers(this.world, node).filter(
      ({ pod, link, what }) =>
        !(what.startsWith("neighbour") && nobodys(pod)) &&
        // Born as the state was lost: it has no mark yet, and no row any more that knows its name.
        !(this.lost && link !== undefined && /^p[ci]/.test(link)),
    );
  }

  /**
   * Before any restart: what is left of a pod has a row that says why, and but for what others
   * changed all is as planned again. A delete by force may leave what it could not undo.
   */
  #checkUnrestarted(): void {
    const { world, node } = this;
    const life = this.life;
    if (node === undefined || life === undefined) return;
    const failed = new Set<string>(
      node.pods.list().flatMap(({ id, state }) => (state === "failed" ? [id] : [])),
    );
    // A network that could be neither made nor undone has its row until the next start.
    const halves = listNetworks(life.db).filter(({ state }) => /^(?:creat|delet)ing$/.test(state));
    const bridges = new Set<string | undefined>(halves.map(({ definition }) => definition.bridge));
    for (const { pod, link, what } of this.#leftovers(node))
      if (!(pod === undefined ? bridges.has(link) : failed.has(pod) || this.forced.has(pod)))
        this.violated(what);
    const passed = new Set([
      ...Array.from([...failed, ...this.forced], podRuleMark),
      ...halves.map(({ definition: { name } }) => networkMark(name)),
    ]);
    for (const found of [
      ...podViolations(world, node),
      ...poolViolations(world, node),
      ...networkViolations(world, node, passed),
      ...this.#containerViolations(node),
      ...this.#policies.differing(life.db),
    ])
      this.violated(found);
  }

  /** Deletes every pod and takes everything down: the host is as it was. */
  async #end(): Promise<void> {
    const node = this.node as LiveNode;
    const failures: unknown[] = [];
    for (const { id } of node.pods.list())
      this.call(`delete ${id}`, async () => {
        this.promised.delete(id);
        await node.pods
          .delete(id, { force: false })
          .catch((thrown: unknown) => failures.push(thrown));
      });
    for (const { name } of node.policies.list())
      this.call(`policy delete ${name}`, async () => {
        await node.policies.delete(name).catch((thrown: unknown) => failures.push(thrown));
      });
    await this.converged();
    if (failures.length > 0) this.violated(`a calm delete fails: ${stackOf(failures[0])}`);
    this.call("down", async () => {
      node.pods.pool.rest();
      await this.time.passed(1000);
      await node.drift.rest();
      if (this.world.containers.namespaces.openDescriptors > 0)
        this.violated("a container's namespace is held open");
      await node.attachments.down();
      await node.networks.down(() =>
        node.network.remove({ kind: "everything" }, AbortSignal.timeout(60_000)),
      );
    });
    await this.converged();
    for (const found of remains(this.world, this.lost)) this.violated(found);
    if (node.pods.list().length + node.attachments.list().length > 0)
      this.violated("rows are left");
    this.checkBooks();
    await this.#until(() => true);
  }

  #committed(): void {
    const { life, time } = this;
    this.#watchStates();
    this.#changed = time.monotonicMs;
    if (life?.process.alive === true) this.#policies.rowsChanged(life.db);
  }

  /** Compares the rows' states with those after the commit before. */
  #watchStates(): void {
    const life = this.life;
    if (life === undefined || !life.process.alive) return;
    let rows: { readonly id: string; readonly state: PodRow["state"] }[];
    try {
      rows = life.db.all("SELECT id, state FROM pods") as unknown as typeof rows;
    } catch {
      return;
    }
    const now = new Map(rows.map(({ id, state }) => [id, state]));
    for (const id of new Set([...now.keys(), ...this.#states.keys()])) {
      const before = this.#states.get(id) ?? "gone";
      const after = now.get(id) ?? "gone";
      if (before !== after) this.trace.push(`${" ".repeat(12)} pod ${id}: ${before} → ${after}`);
      if (mayFollow(before, after) || (after === "gone" && this.#isDeletedUnwritten(id))) continue;
      this.violated(`pod ${id} went from ${before} to ${after}`);
    }
    this.#states = now;
  }

  /**
   * Whether a delete by force went on although its first commit, which says `deleting`, had failed.
   */
  #isDeletedUnwritten(id: string): boolean {
    const said = `log ${id} Deleting the pod, although the deletion cannot be recorded`;
    return this.trace.some((line) => line.includes(said));
  }
}

function difference(before: string, after: string): string {
  const [old, now] = [before.split("\n"), after.split("\n")];
  const gone = old.filter((line) => !now.includes(line)).map((line) => `- ${line}`);
  return [...gone, ...now.filter((line) => !old.includes(line)).map((line) => `+ ${line}`)].join(
    "\n",
  );
}

const stackOf = (thrown: unknown): string =>
  thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
