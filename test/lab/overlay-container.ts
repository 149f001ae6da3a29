import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type Machine, machine } from "./lab.ts";
import { batch } from "./underlay.ts";

const exec = promisify(execFile);

/**
 * Stands for a pod: a namespace on a host's bridge. It has an address of the host's subnet that
 * podnet knows nothing of.
 */
export interface Container extends AsyncDisposable {
  readonly machine: Machine;
  readonly address: string;
  readonly address6: string | undefined;
}

/** What there is to know of the subnet it is put in. */
export interface Place {
  readonly host: Machine;
  readonly bridge: string;
  /** `10.77.3.1/24`: the gateway's. */
  readonly gateway: string;
  readonly gateway6: string | undefined;
  readonly mtu: number;
}

let made = 0;

/** Puts one on the bridge, which has to be there. */
export async function startContainer(place: Place, number: number): Promise<Container> {
  const { host, bridge, gateway, gateway6, mtu } = place;
  const [base = "", length = ""] = gateway.split("/");
  const own = base.replace(/\d+$/, `${200 + number}`);
  const [base6 = "", length6 = ""] = gateway6?.split("/") ?? [];
  const own6 = gateway6 === undefined ? undefined : base6.replace(/::1$/, `::c${number}`);
  const pod = machine(`${host.name}c${made++}`);
  const port = `c${made}`;
  await exec("ip", ["netns", "add", pod.name]);
  await pod.run("sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0");
  await batch(host, [
    `link add ${port} mtu ${mtu} type veth peer name eth0 netns ${pod.name}`,
    `link set ${port} master ${bridge} up`,
  ]);
  await batch(pod, [
    "link set lo up",
    `link set eth0 up mtu ${mtu}`,
    `addr add ${own}/${length} dev eth0`,
    `route add default via ${base}`,
    ...(own6 === undefined
      ? []
      : [`addr add ${own6}/${length6} dev eth0`, `route add default via ${base6}`]),
  ]);
  return {
    machine: pod,
    address: own,
    address6: own6,
    [Symbol.asyncDispose]: async () => {
      await exec("ip", ["netns", "del", pod.name]);
    },
  };
}
