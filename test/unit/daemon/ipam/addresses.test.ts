import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { type Cidr, type Ip, ipFromBigInt, ipToBigInt, rangeOf } from "../../../../core/address.ts";
import type { NetworkDefinition } from "../../../../daemon/config/network-definition.ts";
import { Addresses } from "../../../../daemon/ipam/addresses.ts";
import type { PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import { Database } from "../../../../daemon/store/database.ts";
import { putNetwork } from "../../../../daemon/networks/store.ts";
import { Random, runSeed } from "../../../fuzz/engine/random.ts";
import { podIdOf } from "../../../lab/network.ts";
import { definition, readyRow } from "../../../lab/network-definition.ts";

const quarantineMs = 1000;
const operations = process.env["PODNET_TEST_FULL"] === "1" ? 20_000 : 1500;

const networks = [
  { cidr: "10.9.0.0/26" as Cidr, gateway: "10.9.0.1/26" as never, size: 64n, fixed: 3n },
  { cidr: "fd00:9::/122" as Cidr, gateway: "fd00:9::1/122" as never, size: 64n, fixed: 2n },
];

/**
 * One node's addresses, over restarts, alongside a model of them: who holds what, and what rests
 * since when.
 */
class Books {
  readonly held = new Map<Ip, string>();
  readonly quarantinedOffsets = new Map<Ip, number>();
  readonly plans = new Map<string, PodPlan>();
  now = 1_000_000;
  addresses: Addresses;
  readonly db = Database.openIn(mkdtempSync(join(tmpdir(), "podnet-books-")));
  readonly #t: ExecutionContext;
  readonly #network: (typeof networks)[number];
  readonly #definition: NetworkDefinition;
  #made = 0;

  constructor(t: ExecutionContext, network: (typeof networks)[number]) {
    this.#t = t;
    this.#network = network;
    const { gateway } = network;
    this.#definition = definition("n", [gateway]);
    putNetwork(this.db, this.#definition, readyRow);
    this.addresses = this.open();
  }

  open(): Addresses {
    const clock = { now: () => this.now, monotonic: () => this.now };
    return new Addresses(this.db, [this.#definition], quarantineMs, clock);
  }

  create(count: number): void {
    const next = this.addresses.nextFree("n" as never, this.#network.cidr, count);
    const free = this.#network.size - this.#network.fixed - BigInt(this.held.size);
    this.#t.is(next.length, Math.min(count, Number(free)), "all that are free are found");
    if (next.length < count) return;
    const id = podIdOf(++this.#made);
    const quarantinedOffsets = [...this.quarantinedOffsets.keys()].filter((ip) => this.#rests(ip));
    for (const ip of next) {
      this.#t.false(this.held.has(ip), `${ip} is held`);
      // One that rests is given only when no other is left, and then the one that has rested
      // longest.
      if (this.#rests(ip))
        this.#t.true(
          BigInt(quarantinedOffsets.length) + BigInt(count) > free,
          `${ip} rests, and others are free`,
        );
    }
    const length = this.#network.cidr.slice(this.#network.cidr.indexOf("/"));
    const plan = {
      podId: id,
      interfaces: next.map((ip, position) => ({
        network: "n",
        position,
        addresses: [`${ip}${length}`],
      })),
    } as unknown as PodPlan;
    this.db.transaction(() => this.addresses.insert(plan));
    this.addresses.taken(plan);
    this.plans.set(id, plan);
    for (const ip of next) {
      this.held.set(ip, id);
      this.quarantinedOffsets.delete(ip);
    }
  }

  delete(nth: number): void {
    const id = [...this.plans.keys()][nth];
    if (id === undefined) return;
    const plan = this.plans.get(id) as PodPlan;
    this.plans.delete(id);
    this.db.transaction(() => this.addresses.free([plan]));
    this.addresses.freed([plan]);
    for (const [ip, holder] of this.held)
      if (holder === id) {
        this.held.delete(ip);
        this.quarantinedOffsets.set(ip, this.now);
      }
  }

  /**
   * What the daemon says of every address is what the model says, and all of them are accounted
   * for.
   */
  compare(): void {
    const { free, used, reserved, quarantined } = this.addresses.stats("n" as never);
    const { size, fixed, cidr } = this.#network;
    const quarantinedOffsets = [...this.quarantinedOffsets.keys()].filter((ip) => this.#rests(ip));
    this.#t.is(free + used + reserved + quarantined, size);
    this.#t.deepEqual(
      { used, reserved, quarantined },
      {
        used: BigInt(this.held.size),
        reserved: fixed,
        quarantined: BigInt(quarantinedOffsets.length),
      },
    );
    const { first } = rangeOf(cidr);
    for (let i = 0n; i < size; i++) {
      const ip = ipFromBigInt(cidr.includes(":") ? 6 : 4, first + i);
      const status = this.addresses.status("n" as never, ip);
      this.#t.is(status.kind === "held", this.held.has(ip), String(ipToBigInt(ip)));
    }
  }

  #rests(ip: Ip): boolean {
    const since = this.quarantinedOffsets.get(ip);
    return since !== undefined && this.now - since < quarantineMs;
  }
}

for (const network of networks)
  test(`of ${network.cidr} no address is held twice and each is accounted for, over restarts too`, (t) => {
    const seed = runSeed();
    t.log(`PODNET_SEED=${seed}`);
    const dice = new Random(seed);
    const random = (below: number): number => dice.below(below);
    const books = new Books(t, network);
    for (let i = 0; i < operations; i++) {
      const kind = random(10);
      if (kind < 5) books.create(1 + random(3));
      else if (kind < 9) books.delete(random(Math.max(1, books.plans.size)));
      else books.addresses = books.open();
      books.now += random(60);
      if (i % 10 === 0) books.compare();
    }
    books.addresses = books.open();
    books.compare();
    books.db.close();
  });

test("an address is fresh until something has it, and none is where neighbors of before may be", (t) => {
  const [network] = networks as [(typeof networks)[number]];
  const books = new Books(t, network);
  const isFresh = (n: number): boolean =>
    books.addresses.isFresh("n" as never, `10.9.0.${n}` as Ip);
  books.create(2);
  const [first, second] = [...books.held.keys()].map((ip) => Number(ip.split(".")[3]));
  t.deepEqual(
    [first, second, 40].map((n) => isFresh(n as number)),
    [false, false, true],
  );
  books.delete(0);
  t.false(isFresh(first as number), "who knows it may still be there");
  books.create(1);
  books.addresses = books.open();
  t.false(isFresh(40), "who ran before podnetd did may know it");
  books.delete(0);
  books.now += 2 * quarantineMs;
  books.addresses = books.open();
  t.true(isFresh(first as number), "the network was empty");
  books.db.close();
});
