import { attachmentMark } from "../../network/model/ownership.ts";
import {
  absolute,
  fields,
  flag,
  ip,
  list,
  mac,
  optional,
  prefix,
  published,
  redirect,
  reachedAt,
  text,
  u32,
  whole,
} from "../store/check.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";

const rate = fields({ bitsPerSecond: whole, burstBits: whole });

const route = fields({
  destination: prefix,
  gateway: optional(ip),
  mtu: optional(u32),
  advmss: optional(u32),
  priority: optional(u32),
  table: optional(u32),
  scope: optional(u32),
});

const fragment = fields({
  kind: text,
  key: text,
  netns: absolute,
  namespace: optional(text),
  settling: optional(flag),
  later: optional(fields({ mac: optional(mac), mtu: optional(u32), left: optional(list(text)) })),
  hostLink: text,
  guestLink: text,
  madeByCaller: optional(flag),
  bridge: text,
  mac,
  mtu: u32,
  addresses: list(prefix),
  routes: list(route),
  alias: text,
  isolated: flag,
  vlan: optional(u32),
  foreign: optional(flag),
  bandwidth: optional(fields({ toGuest: optional(rate), fromGuest: optional(rate) })),
  ifb: optional(text),
  macvlan: optional(fields({ link: text, gateway: ip, serviceCidr: optional(prefix) })),
  published: optional(list(reachedAt)),
  withdrawn: optional(list(reachedAt)),
  loopback: optional(list(redirect)),
});

const plan = fields({
  id: text,
  containerId: text,
  ifName: text,
  config: text,
  network: text,
  netns: absolute,
  mac,
  mtu: u32,
  mtuOfNetwork: optional(flag),
  addresses: list(prefix),
  gateways: list(ip),
  fragment,
  published: optional(list(published)),
  portsHeldByRuntime: optional(flag),
  forwarders: optional(list(published)),
  dns: fields({
    nameservers: list(text),
    domain: optional(text),
    search: list(text),
    options: list(text),
  }),
  claimed: optional(fields({ boot: text, us: whole })),
  pod: optional(text),
});

/**
 * Checks the stored plan of a container's attachment; undefined where podnetd can work with it.
 * Checks the fields that podnetd uses, of plans of earlier podnetds too, and that the plan names
 * one attachment: links are removed by its names and mark.
 */
export function attachmentTrouble(stored: unknown): string | undefined {
  const wrong = plan(stored);
  if (wrong !== undefined) return `plan${wrong}`;
  const { id, netns, fragment: part } = stored as AttachmentPlan;
  if (part.key !== id || part.alias !== attachmentMark(id)) return "plan is of two containers";
  if (part.netns !== netns) return "plan is of two namespaces";
  return undefined;
}
