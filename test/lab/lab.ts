import { type ChildProcess, execFile, spawn } from "node:child_process";
import { promisify } from "node:util";

/** A network namespace standing for a machine. */
export interface Machine {
  readonly name: string;
  /** Path of the namespace, as `ip netns` binds it (in the sandbox's own /run). */
  readonly path: string;
  /**
   * Runs a command there; resolves to its standard output, rejects with its standard error in the
   * message.
   */
  run(...argv: readonly [string, ...string[]]): Promise<string>;
  /**
   * Starts a long-running command there. Its pid is the command's own: `ip netns exec` replaces
   * itself.
   */
  spawn(argv: readonly [string, ...string[]], options?: Parameters<typeof spawn>[2]): ChildProcess;
  /**
   * Sends `count` pings and returns the round trips in milliseconds; rejects unless all came back.
   */
  ping(address: string, count?: number): Promise<readonly number[]>;
  /** Whether one ping gets an answer within a second. */
  reaches(address: string): Promise<boolean>;
}

/**
 * Three machines in a row, all namespaces of this sandbox:
 *
 *     lan (192.0.2.20) ── host (192.0.2.1 | 198.51.100.2) ── internet (198.51.100.1, 203.0.113.10)
 *
 * The host's default route is by the internet; the internet knows no route back to the pods, so
 * what arrives there was masqueraded. The LAN routes everything by the host, as a neighbour who
 * tries to get at pods directly would.
 */
export interface Lab extends AsyncDisposable {
  readonly host: Machine;
  readonly lan: Machine;
  readonly internet: Machine;
}

/** Addresses of the lab; the blocks are those set aside for documentation (RFC 5737). */
export const labAddresses = {
  hostOnLan: "192.0.2.1",
  lan: "192.0.2.20",
  hostUplink: "198.51.100.2",
  uplinkGateway: "198.51.100.1",
  internet: "203.0.113.10",
} as const;

const exec = promisify(execFile);

/** The machine whose namespace is called so. */
export const machine = (name: string): Machine =>
  machineBehind(name, `/run/netns/${name}`, ["ip", "netns", "exec", name]);

/** The machine that `enter` enters: a command that is given another one and becomes it. */
export function machineBehind(
  name: string,
  path: string,
  enter: readonly [string, ...string[]],
  env?: Readonly<Record<string, string>>,
): Machine {
  const [program, ...words] = enter;
  const surroundings = env === undefined ? {} : { env: { ...process.env, ...env } };
  const run = async (...argv: readonly [string, ...string[]]): Promise<string> =>
    (await exec(program, [...words, ...argv], { ...surroundings, maxBuffer: 1 << 26 })).stdout;
  return {
    name,
    path,
    run,
    spawn: (argv, options) =>
      spawn(program, [...words, ...argv], {
        ...surroundings,
        ...options,
        ...(options?.env === undefined ? {} : { env: { ...options.env, ...env } }),
      }),
    async ping(address, count = 1) {
      const output = await run("ping", "-n", "-c", `${count}`, "-i", "0.05", "-W", "2", address);
      const times = [...output.matchAll(/time=([0-9.]+) ms/g)].map(([, time]) => Number(time));
      if (times.length !== count)
        throw new Error(`${times.length} of ${count} pings to ${address} came back`);
      return times;
    },
    async reaches(address) {
      try {
        await run("ping", "-n", "-c", "1", "-W", "1", address);
        return true;
      } catch {
        return false;
      }
    },
  };
}

/**
 * Makes the lab. Refuses outside of scripts/sandbox, so that nothing is ever made in the real
 * network.
 */
export async function openLab(prefix = ""): Promise<Lab> {
  if (process.env["PODNET_SANDBOX"] !== "1") {
    throw new Error("The lab makes links and rules; run this below scripts/sandbox");
  }
  const [host, lan, internet] = ["host", "lan", "internet"].map((name) =>
    machine(prefix + name),
  ) as [Machine, Machine, Machine];
  await using made = new AsyncDisposableStack();
  for (const { name } of [host, lan, internet]) {
    await exec("ip", ["netns", "add", name]);
    made.defer(async () => {
      await exec("ip", ["netns", "del", name]);
    });
    await exec("ip", ["-n", name, "link", "set", "dev", "lo", "up"]);
  }
  await join(host, "lan0", `${labAddresses.hostOnLan}/24`, lan, "eth0", `${labAddresses.lan}/24`);
  await join(
    host,
    "wan0",
    `${labAddresses.hostUplink}/24`,
    internet,
    "eth0",
    `${labAddresses.uplinkGateway}/24`,
  );
  await host.run("ip", "route", "add", "default", "via", labAddresses.uplinkGateway);
  await lan.run("ip", "route", "add", "default", "via", labAddresses.hostOnLan);
  await internet.run("ip", "addr", "add", `${labAddresses.internet}/32`, "dev", "lo");
  const owned = made.move();
  return { host, lan, internet, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

async function join(
  a: Machine,
  aLink: string,
  aAddress: string,
  b: Machine,
  bLink: string,
  bAddress: string,
): Promise<void> {
  await exec("ip", [
    "-n",
    a.name,
    "link",
    "add",
    "name",
    aLink,
    "type",
    "veth",
    "peer",
    "name",
    bLink,
    "netns",
    b.name,
  ]);
  for (const [machine, link, address] of [
    [a, aLink, aAddress],
    [b, bLink, bAddress],
  ] as const) {
    await exec("ip", ["-n", machine.name, "addr", "add", address, "dev", link]);
    await exec("ip", ["-n", machine.name, "link", "set", "dev", link, "up"]);
  }
}
