import type { Cidr, IpPrefix } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import { run } from "../../../linux/processes/command.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import { podMark } from "../../../network/model/ownership.ts";
import type { Decisions } from "../../../policy/compile.ts";
import {
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  outsideAddress,
} from "../../../test/lab/firewall-site.ts";
import { networkFragment, podIdOf } from "../../../test/lab/network.ts";

const { signal } = new AbortController();

/** The pod that is measured: 192.168.123.2 on `hyper0`. */
export const measured = dualPod(2);

/** A host with the pod that is measured, with others on a bridge of their own. */
export interface GuardedHost extends AsyncDisposable {
  readonly site: FirewallSite;
  /** Makes these the decisions of a pod; undefined is no policy. In force when it resolves. */
  police(pod: PodFragment, given: Decisions | undefined): Promise<void>;
  /** Ends flows of a pod that its policy does not allow, as podnetd does after each change. */
  cut(pod: PodFragment): Promise<void>;
  /** Brings a pod's entries of the guard up to date. */
  guard(pod: PodFragment): Promise<void>;
}

/** The decisions of a policy that lets a pod reach ports of the machine outside. */
export const allowing = (...ports: readonly (number | string)[]): Decisions =>
  decisions({
    default: "deny",
    rules: [
      { name: "closed", action: "deny", cidrs: ["198.51.100.0/24"] },
      { name: "open", action: "allow", cidrs: [outsideAddress[4]], ports },
      { name: "ping", action: "allow", cidrs: [outsideAddress[4]], protocol: "icmp" },
    ],
  });

const crowdBridge = "crowd0" as IfName;
const crowdNetwork = networkFragment({
  key: "crowd",
  bridge: crowdBridge,
  gateways: ["10.88.0.1/16" as IpPrefix],
  masquerade: ["10.88.0.0/16" as Cidr],
});

/** Pod `n` of the others, counted from 1. */
export function other(n: number): PodFragment {
  const [port] = dualPod(n & 255).ports;
  if (port === undefined) throw new Error("A pod without a port");
  const key = podIdOf(1000 + n);
  const guestAddresses = [`10.88.${n >> 8}.${n & 255}/16` as IpPrefix];
  const tap = `crowd${n}` as IfName;
  const alias = podMark(key, 0);
  return {
    kind: "pod",
    key,
    ports: [{ ...port, tap, bridge: crowdBridge, guestAddresses, alias }],
  };
}

/** The other pods of a host. */
export interface Crowd {
  readonly pods: number;
  /** Policies that they share. */
  readonly policies: number;
}

/** Opens a host in a network namespace of its own, in which this process is from then on. */
export async function openGuardedHost({ pods, policies }: Crowd): Promise<GuardedHost> {
  const decided = new Map<string, Decisions>();
  const site = await FirewallSite.open(
    { firewall: "nftables", iptables: "auto" },
    { policies: decided },
  );
  const crowd = Array.from({ length: pods }, (_, i) => other(i + 1));
  const links = crowd.flatMap(({ ports }) =>
    ports.map(({ tap }) => `link add ${tap} type veth peer name ${tap}b`),
  );
  await run(["ip", "-batch", "-"], { stdin: `${links.join("\n")}\n` });
  await site.pod(2);
  const shared = Array.from({ length: policies }, (_, i) => allowing(9000, 10_000 + i));
  for (const [i, { key }] of crowd.entries()) {
    const one = shared[i % policies];
    if (one !== undefined) decided.set(key, one);
  }
  await site.ensure(dualNetwork(), crowdNetwork, measured);
  if (pods > 0) {
    await site.host.apply({ kind: "running-pods", pods: crowd }, signal);
    await site.host.apply({ kind: "policies", now: () => crowd }, signal);
  }
  return {
    site,
    async police(pod, given) {
      if (given === undefined) decided.delete(pod.key);
      else decided.set(pod.key, given);
      await site.host.apply({ kind: "policies", now: () => [pod] }, signal);
    },
    async cut(pod) {
      await site.host.remove({ kind: "denied-connections", of: [pod] }, signal);
    },
    async guard(pod) {
      await site.host.apply(pod, signal);
    },
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}
