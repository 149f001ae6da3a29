import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { run } from "../../linux/processes/command.ts";
import { type Machine, machine } from "./lab.ts";

const exec = promisify(execFile);

export const underlayAddress = (n: number): string => `192.168.77.${n}`;
export const underlayAddress6 = (n: number): string => `fd77::${n}`;
/** Where the members of the store answer. */
const storeAddresses = [250, 251, 252].map(underlayAddress);

/**
 * Machines on one link: a bridge in a namespace of its own. Machine N has 192.168.77.N and fd77::N
 * on eth0; the store, one more, has .250 to .252. Any two can be cut off from each other
 * without notice.
 */
export class Underlay implements AsyncDisposable {
  readonly machines: readonly Machine[];
  readonly store: Machine;
  readonly storeAddresses = storeAddresses;
  readonly #lan: Machine;
  readonly #made: AsyncDisposableStack;
  /** Pairs of ports. */
  readonly #cuts = new Set<string>();

  private constructor(
    lan: Machine,
    machines: readonly Machine[],
    store: Machine,
    made: AsyncDisposableStack,
  ) {
    this.#lan = lan;
    this.machines = machines;
    this.store = store;
    this.#made = made;
  }

  static async open(count: number, name: string): Promise<Underlay> {
    if (process.env["PODNET_SANDBOX"] !== "1")
      throw new Error("Hosts are made of links and rules; run this below scripts/sandbox");
    await using made = new AsyncDisposableStack();
    const open = async (suffix: string): Promise<Machine> => {
      const one = machine(`${name}${suffix}`);
      await exec("ip", ["netns", "add", one.name]);
      made.defer(() => exec("ip", ["netns", "del", one.name]).then(() => undefined));
      await one.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0");
      return one;
    };
    const lan = await open("lan");
    await batch(lan, ["link add lan0 type bridge forward_delay 0", "link set lan0 up"]);
    const plug = async (one: Machine, port: string, addresses: readonly string[]) => {
      await batch(lan, [
        `link add ${port} type veth peer name eth0 netns ${one.name}`,
        `link set ${port} master lan0 up`,
      ]);
      await batch(one, [
        "link set lo up",
        "link set eth0 up",
        ...addresses.map((address) => `addr add ${address} dev eth0`),
      ]);
    };
    const store = await open("store");
    await plug(
      store,
      "store",
      storeAddresses.map((address) => `${address}/24`),
    );
    const machines: Machine[] = [];
    for (let n = 1; n <= count; n++) {
      const one = await open(`h${n}`);
      await plug(one, `h${n}`, [`${underlayAddress(n)}/24`, `${underlayAddress6(n)}/64`]);
      machines.push(one);
    }
    await lan.run("nft", "add table bridge cuts");
    await lan.run("nft", "add chain bridge cuts pairs { type filter hook forward priority 0; }");
    return new Underlay(lan, machines, store, made.move());
  }

  /** Nothing passes between these two any more: machine numbers, or `store`. */
  async cut(a: number | "store", b: number | "store"): Promise<void> {
    this.#cuts.add(pairOf(a, b));
    await this.#apply();
  }

  async mend(a: number | "store", b: number | "store"): Promise<void> {
    this.#cuts.delete(pairOf(a, b));
    await this.#apply();
  }

  isCut(a: number | "store", b: number | "store"): boolean {
    return this.#cuts.has(pairOf(a, b));
  }

  /** Everybody reaches everybody. */
  async mendAll(): Promise<void> {
    this.#cuts.clear();
    await this.#apply();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#made.disposeAsync();
  }

  async #apply(): Promise<void> {
    const rules = Array.from(this.#cuts, (pair) => {
      const [a, b] = pair.split(",");
      return [`iifname ${a} oifname ${b} drop`, `iifname ${b} oifname ${a} drop`];
    }).flat();
    const lines = [
      "flush chain bridge cuts pairs",
      ...rules.map((rule) => `add rule bridge cuts pairs ${rule}`),
    ];
    await this.#lan.run("nft", lines.join("; "));
  }
}

const portOf = (one: number | "store"): string => (one === "store" ? one : `h${one}`);

const pairOf = (a: number | "store", b: number | "store"): string =>
  [portOf(a), portOf(b)].toSorted().join();

/** Lines for `ip`, on a machine. */
export async function batch(on: Machine, lines: readonly string[]): Promise<void> {
  await run(["ip", "-n", on.name, "-batch", "-"], { stdin: `${lines.join("\n")}\n` });
}
