import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { type Change, Compacted, Gateway, type GatewayOptions } from "./flannel-etcd.ts";
import {
  type Attributes,
  type FlannelConfig,
  type Subnets,
  attributesText,
  parseAttributes,
  parseSubnetKey,
  previousSubnets,
  subnetEnv,
  subnetKey,
} from "./flannel-format.ts";
import { type Backend, type Outer, openHostGw, openVxlan, readOuter } from "./flannel-kernel.ts";
import { acquire, configuration } from "./flannel-lease.ts";
import { writeRules } from "./flannel-rules.ts";

/*
 * A stand-in for flanneld on etcd v3, vxlan and host-gw, a process of its own. The real one cannot
 * be installed here. It was written from the project's recorded facts about it (what was seen live,
 * and what was read in its code) by someone who had not read podnet's overlay, and shares no code
 * with it: the two agree only where both agree with the facts. It is no proof about the real one.
 *
 * Faults of the real one that others have to live with are kept: it wipes the routes of all peers
 * at a key or a value it cannot read, stands still for good at a lease of two families in a network
 * of one, ends when its own key is deleted, exits when it loses a race for a subnet, and after
 * compaction does not see what else changed in a lease whose subnet stayed. Left out: its retries,
 * that its own lease blocks it after compaction, the repair of its rules, its HTTP servers, and
 * users with passwords.
 */

/** Its command line, as JSON. */
export interface FlannelOptions {
  readonly etcd: GatewayOptions;
  readonly prefix: string;
  readonly interface: string;
  readonly subnetFile: string;
  /** 86,400 in flannel. */
  readonly ttlSeconds?: number;
  /** 3,600 unless given. */
  readonly marginSeconds?: number;
  readonly masquerade?: boolean;
}

interface Lease {
  readonly subnets: Subnets;
  readonly attributes: Attributes;
}

const usualTtl = 86_400;
const same = (a: Subnets, b: Subnets): boolean => subnetKey(a) === subnetKey(b);

function parseLease({ key, value }: { readonly key: string; readonly value: string }) {
  const [subnets, attributes] = [parseSubnetKey(key), parseAttributes(value)];
  return subnets === undefined || attributes === undefined ? undefined : { subnets, attributes };
}

class Flannel {
  readonly #options: FlannelOptions;
  readonly #etcd: Gateway;
  readonly #subnetsKey: string;
  readonly #config: FlannelConfig;
  readonly #outer: Outer;
  readonly #backend: Backend;
  /** What it remembers of the others. */
  #leases: Lease[] = [];
  #own: Subnets = {};

  constructor(
    options: FlannelOptions,
    etcd: Gateway,
    config: FlannelConfig,
    outer: Outer,
    backend: Backend,
  ) {
    this.#options = options;
    this.#etcd = etcd;
    this.#subnetsKey = `${options.prefix}/subnets`;
    this.#config = config;
    this.#outer = outer;
    this.#backend = backend;
  }

  async run(): Promise<void> {
    const { subnetFile, masquerade = false } = this.#options;
    this.#own = await acquire({
      etcd: this.#etcd,
      subnetsKey: this.#subnetsKey,
      config: this.#config,
      attributes: this.#attributes,
      ttlSeconds: this.#options.ttlSeconds ?? usualTtl,
      previous: this.#previous(),
    });
    this.#renewLater();
    await this.#backend.configure(this.#own);
    await writeRules(this.#config, this.#own, masquerade);
    writeFileSync(
      `${subnetFile}.new`,
      subnetEnv(this.#config, this.#own, this.#backend.mtu, masquerade),
      { mode: 0o644 },
    );
    renameSync(`${subnetFile}.new`, subnetFile);
    console.log(`ready ${subnetKey(this.#own)}`);
    await this.#follow();
  }

  get #attributes(): Attributes {
    const { ip, ip6 } = this.#outer;
    const dual = this.#config.families.some(({ network }) => network.family === 6);
    return {
      publicIp: ip,
      publicIp6: dual ? ip6 : undefined,
      backendType: this.#config.backend,
      data: this.#backend.data,
      data6: this.#backend.data6,
    };
  }

  #previous(): Subnets {
    try {
      return previousSubnets(readFileSync(this.#options.subnetFile, "utf8"));
    } catch {
      return {};
    }
  }

  /** A new etcd lease under the same key, whoever wrote it last; the old one runs out. */
  #renewLater(): void {
    const { ttlSeconds = usualTtl, marginSeconds = 3600 } = this.#options;
    const later = (seconds: number): void => {
      setTimeout(() => {
        const renew = async (): Promise<void> => {
          const lease = await this.#etcd.grant(ttlSeconds);
          const key = `${this.#subnetsKey}/${subnetKey(this.#own)}`;
          await this.#etcd.put(key, attributesText(this.#attributes), lease);
        };
        renew().then(
          () => later(ttlSeconds - marginSeconds),
          (error: unknown) => {
            console.error(`renew: ${String(error)}`);
            later(Math.min(60, marginSeconds / 4));
          },
        );
      }, seconds * 1000);
    };
    later(ttlSeconds - marginSeconds);
  }

  /** Snapshot, then increments; never ends by itself. */
  async #follow(): Promise<void> {
    let from: bigint | undefined;
    for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
      try {
        from ??= await this.#snapshot();
        for await (const { changes, revision } of this.#etcd.watch(this.#subnetsKey, from)) {
          pause = 100;
          await this.#apply(changes);
          if (changes.length > 0) from = revision + 1n;
        }
      } catch (error) {
        if (error instanceof Compacted) from = undefined;
        console.error(`watch: ${String(error)}`);
        await sleep(pause);
      }
    }
  }

  async #snapshot(): Promise<bigint> {
    const { kvs, revision } = await this.#etcd.list(this.#subnetsKey);
    const found = kvs.flatMap((one) => parseLease(one) ?? []);
    await this.#become(found.filter(({ subnets }) => !same(subnets, this.#own)));
    return revision + 1n;
  }

  /** Looks at subnets only: what else changed in a lease goes by. */
  async #become(leases: readonly Lease[]): Promise<void> {
    const among = (lease: Lease, all: readonly Lease[]): boolean =>
      all.some(({ subnets }) => same(subnets, lease.subnets));
    const gone = this.#leases.filter((lease) => !among(lease, leases));
    const come = leases.filter((lease) => !among(lease, this.#leases));
    this.#leases = [...leases];
    for (const { subnets, attributes } of gone) await this.#backend.remove(subnets, attributes);
    for (const lease of come) await this.#add(lease);
  }

  async #apply(changes: readonly Change[]): Promise<void> {
    for (const change of changes) {
      const subnets = parseSubnetKey(change.key);
      if (change.value === undefined) {
        if (subnets === undefined) await this.#unreadable(change);
        else await this.#deleted(subnets);
        continue;
      }
      const lease = parseLease({ key: change.key, value: change.value });
      if (lease === undefined) await this.#unreadable(change);
      else if (!same(lease.subnets, this.#own)) {
        this.#leases = [...this.#leases.filter((one) => !same(one.subnets, lease.subnets)), lease];
        await this.#add(lease);
      }
    }
  }

  async #deleted(subnets: Subnets): Promise<void> {
    if (same(subnets, this.#own)) {
      console.log("Lease has been revoked");
      process.exit(0);
    }
    const known = this.#leases.find((lease) => same(lease.subnets, subnets));
    this.#leases = this.#leases.filter((lease) => lease !== known);
    if (known !== undefined) await this.#backend.remove(known.subnets, known.attributes);
  }

  /** A result without events counts as the snapshot of a network without other hosts. */
  async #unreadable({ key }: Change): Promise<void> {
    console.log(`wiped at ${key}`);
    await this.#become([]);
  }

  async #add({ subnets, attributes }: Lease): Promise<void> {
    const families = [subnets.v4, subnets.v6].filter((net) => net !== undefined).length;
    if (families > this.#config.families.length && this.#config.backend === "vxlan") {
      console.log(`wedged at ${subnetKey(subnets)}`);
      // Nothing waits for the panic of its event loop: the process stays, and does no more.
      setInterval(() => {}, 60_000);
      await new Promise(() => {});
    }
    await this.#backend.add(subnets, attributes).catch((error: unknown) => {
      console.error(String(error));
    });
  }
}

async function main(): Promise<void> {
  const { positionals } = parseArgs({ allowPositionals: true });
  const options = JSON.parse(positionals[0] ?? "") as FlannelOptions;
  const etcd = new Gateway(options.etcd);
  const config = await configuration(etcd, options.prefix);
  const outer = await readOuter(options.interface);
  if (config.backend !== "vxlan" && config.backend !== "host-gw")
    throw new Error(`This stand-in has no backend ${config.backend}`);
  const backend = config.backend === "vxlan" ? await openVxlan(config, outer) : openHostGw(outer);
  await new Flannel(options, etcd, config, outer, backend).run();
}

// Device, routes, rules, lease and subnet.env stay.
process.on("SIGTERM", () => process.exit(0));
if (import.meta.main)
  main().catch((error: unknown) => {
    console.error(String(error));
    process.exit(1);
  });
