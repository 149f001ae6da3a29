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
  text,
  texts,
  u32,
  whole,
} from "../store/check.ts";

const rate = fields({
  bitsPerSecond: optional(whole),
  burstBits: optional(whole),
  packetsPerSecond: optional(whole),
});
const rates = fields({ toGuest: optional(rate), fromGuest: optional(rate) });

const plan = fields({
  id: text,
  containerId: text,
  ifName: text,
  config: text,
  network: text,
  netns: absolute,
  namespace: optional(text),
  hostVeth: optional(text),
  bridge: text,
  mac,
  mtu: u32,
  mtuOfNetwork: optional(flag),
  addresses: list(prefix),
  gateways: list(ip),
  bandwidth: optional(rates),
  serviceCidr: optional(prefix),
  published: optional(list(published)),
  portsHeldByRuntime: optional(flag),
  forwarders: optional(list(published)),
  loopback: optional(list(redirect)),
  dns: fields({
    nameservers: list(text),
    domain: optional(text),
    search: list(text),
    options: list(text),
  }),
  claimed: optional(fields({ boot: text, us: whole })),
  pod: optional(text),
  labels: optional(texts),
  awaitsPlugins: optional(flag),
  later: optional(fields({ mac: optional(mac), mtu: optional(u32), left: optional(list(text)) })),
});

/**
 * Checks the stored plan of a container's attachment; undefined where podnetd can work with it.
 * Checks the fields that podnetd uses, of plans of earlier podnetds too.
 */
export function attachmentTrouble(stored: unknown): string | undefined {
  const wrong = plan(stored);
  return wrong === undefined ? undefined : `plan${wrong}`;
}
