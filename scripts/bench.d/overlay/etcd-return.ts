import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { connectEtcd } from "../../../etcd/client.ts";
import type { RouteWatch } from "./routes.ts";
import { type Site, foreignOf, foreignSubnet } from "./site.ts";

/** For how long etcd is away, milliseconds. */
const awayMs = 3000;
/** Longest that etcd may take to come back, milliseconds. */
const limitMs = 30_000;

/** A return of etcd's, milliseconds from when its port took a connection again. */
export interface EtcdReturn {
  /** Until it had taken another host's lease: its own start, and no work of podnetd's. */
  readonly takenMs: number;
  /** Until podnetd had that lease's route. */
  readonly routeMs: number;
}

/**
 * Kills etcd, starts it after a while, and puts another host's lease as soon as its port takes
 * connections, by a client that has been kept waiting by nothing: podnetd's own reconnection is
 * measured whole.
 */
export async function etcdReturn(
  { lab }: Pick<Site, "lab">,
  watch: RouteWatch,
  n: number,
): Promise<EtcdReturn> {
  const [member] = lab.etcd.members;
  if (member === undefined) throw new Error("There is no etcd");
  await member.kill();
  await delay(awayMs);
  const seen = watch.all([foreignSubnet(n)], limitMs);
  member.start();
  await untilAccepted(member.address);
  const begin = performance.now();
  const taken = putAtOnce(lab, n);
  const [takenAt, seenAt] = await Promise.all([taken, seen]);
  return { takenMs: takenAt - begin, routeMs: seenAt - begin };
}

/** Puts it as soon as etcd takes it; answers when that was. */
async function putAtOnce(lab: Site["lab"], n: number): Promise<number> {
  using client = connectEtcd(lab.etcd.client);
  for (const end = performance.now() + limitMs; ; await delay(5)) {
    try {
      await client.put(...foreignOf(lab.prefix, n));
      return performance.now();
    } catch (thrown) {
      // (While it elects itself.)
      if (performance.now() > end) throw thrown;
    }
  }
}

async function untilAccepted(host: string): Promise<void> {
  for (const end = performance.now() + limitMs; !(await accepts(host)); await delay(2))
    if (performance.now() > end) throw new Error("etcd does not listen again");
}

const accepts = (host: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ host, port: 2379 });
    const answer = (accepted: boolean): void => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once("connect", () => answer(true)).once("error", () => answer(false));
  });
