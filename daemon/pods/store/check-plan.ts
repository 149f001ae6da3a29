import { dirname } from "node:path";
import {
  absolute,
  fields,
  flag,
  ip,
  list,
  optional,
  prefix,
  published,
  reachedAt,
  record,
  text,
  u32,
  whole,
} from "../../store/check.ts";
import { type DataDiskPlan, madeFiles } from "./data-disks.ts";

const route = fields({ destination: text, interface: text, gateway: optional(ip) });
const neighbour = fields({ interface: text, address: ip, mac: text });
const dns = fields({ servers: list(ip), search: list(text), options: list(text) });

const disk = fields({
  path: absolute,
  format: text,
  readOnly: flag,
  overlay: optional(fields({ path: absolute, bytes: whole, over: text })),
});

const jail = fields({
  uid: whole,
  cgroups: list(fields({ path: absolute, files: list(list(text)) })),
});

const size = fields({ vcpu: whole, memoryMib: whole });

const vm = fields({
  podId: text,
  vcpu: whole,
  memoryMib: whole,
  room: optional(size),
  grown: optional(size),
  kernel: optional(text),
  initrd: optional(text),
  cmdline: text,
  disks: list(disk),
  imagesWithin: optional(list(text)),
  writeWithin: optional(list(text)),
  shares: optional(
    list(fields({ tag: text, path: absolute, at: absolute, writable: optional(flag) })),
  ),
  sharesWithin: optional(list(text)),
  writableWithin: optional(list(text)),
  attached: optional(fields({ qmp: absolute, type: text, accelerator: text })),
  runDir: absolute,
  jail: optional(jail),
});

const nic = fields({
  nicId: text,
  netdevId: text,
  fdName: text,
  tap: text,
  mac: text,
  slot: whole,
});

const cni = fields({
  netns: absolute,
  link: text,
  sandbox: optional(
    fields({ containerId: text, list: record, args: record, capabilities: record }),
  ),
  taken: optional(
    fields({
      routes: list(route),
      neighbours: list(neighbour),
      dns: optional(dns),
    }),
  ),
});

const limit = fields({
  bandwidth: optional(whole),
  burst: optional(whole),
  packets: optional(whole),
});

const networkInterface = fields({
  position: whole,
  network: optional(text),
  bridge: optional(text),
  bridgeMtu: optional(u32),
  port: optional(
    fields({
      vlan: optional(whole),
      isolated: optional(flag),
      learning: optional(flag),
      guard: optional(flag),
      limits: optional(fields({ in: optional(limit), out: optional(limit) })),
    }),
  ),
  addresses: list(prefix),
  gateways: list(fields({ gateway: ip })),
  mtu: u32,
  guestName: text,
  nic: optional(nic),
  cni: optional(cni),
});

const dataDisk = fields({
  name: text,
  path: absolute,
  format: text,
  readOnly: flag,
  slot: whole,
  within: optional(list(text)),
  madeMib: optional(whole),
  change: optional(text),
});

const plan = fields({
  podId: text,
  name: text,
  vm,
  interfaces: list(networkInterface),
  routes: list(route),
  dns: optional(dns),
  published: optional(list(published)),
  withdrawn: optional(list(reachedAt)),
  hadLoopback: optional(flag),
  disks: optional(list(dataDisk)),
  process: optional(
    fields({
      args: list(text),
      env: list(fields({ env: text, value: text })),
      user: optional(text),
      workdir: absolute,
      terminal: flag,
      stdin: flag,
      stopSignal: whole,
      stopTimeoutMs: whole,
    }),
  ),
});

const spec = fields({
  labels: record,
  resources: fields({
    vcpu: whole,
    memoryMib: whole,
    maxVcpu: optional(whole),
    maxMemoryMib: optional(whole),
  }),
  boot: fields({ cmdline: text, disks: list(fields({ path: text })) }),
  interfaces: list(record),
  routes: list(fields({ destination: text })),
  ports: optional(list(fields({ hostPort: whole, podPort: whole, count: whole }))),
  policy: optional(record),
  disks: optional(list(record)),
  shares: optional(list(fields({ hostPath: absolute, path: absolute }))),
  files: optional(list(fields({ path: text, content: text, mode: whole, uid: u32, gid: u32 }))),
});

/**
 * What is wrong with a stored plan; undefined when podnetd can work with it. Checks the fields that
 * podnetd uses, in plans of earlier podnetds too, and that all paths are the pod's, as podnetd
 * kills and removes what they name.
 */
export function planTrouble(stored: unknown): string | undefined {
  const wrong = plan(stored);
  if (wrong !== undefined) return `plan${wrong}`;
  const {
    podId,
    vm: machine,
    disks = [],
  } = stored as {
    readonly podId: string;
    readonly disks?: readonly DataDiskPlan[];
    readonly vm: {
      readonly podId: string;
      readonly runDir: string;
      readonly jail?: { readonly cgroups: readonly { readonly path: string }[] };
    };
  };
  if (machine.podId !== podId) return "plan is of two pods";
  const its = [
    machine.runDir,
    ...(machine.jail?.cgroups ?? []).map(({ path }) => path),
    ...madeFiles(disks).map((path) => dirname(path)),
  ];
  const other = its.find((path) => !path.endsWith(`/${podId}`));
  return other === undefined
    ? undefined
    : `plan names ${JSON.stringify(other.slice(0, 100))}, which is none of its pod's`;
}

const observed = fields({
  hostname: text,
  interfaces: list(fields({ name: text, mac: text, mtu: whole, addresses: list(text) })),
  loopback: optional(list(text)),
  routes: list(route),
});

/** What is wrong with a stored request, as `planTrouble`. */
export const specTrouble = (stored: unknown): string | undefined => named("spec", spec(stored));

/** As above, for what the guest last reported. */
export const observedTrouble = (stored: unknown): string | undefined =>
  named("observed", observed(stored));

const named = (what: string, wrong: string | undefined): string | undefined =>
  wrong === undefined ? undefined : `${what}${wrong}`;
