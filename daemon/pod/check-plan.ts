import { isIP } from "node:net";

/**
 * Says what is wrong with a part of what was stored, beginning with where in it; undefined when nothing is. The place is put
 * together when something is wrong, and not before: every pod of a list is looked at.
 */
type Check = (value: unknown) => string | undefined;

const is = (what: string, holds: (value: unknown) => boolean): Check => {
  const wrong = ` is no ${what}`;
  return (value) => (holds(value) ? undefined : wrong);
};

const text = is("text", (value) => typeof value === "string");
const whole = is("number", (value) => Number.isSafeInteger(value));
const flag = is("truth value", (value) => typeof value === "boolean");
const absolute = is("path", (value) => typeof value === "string" && value.startsWith("/"));
const ip = is("address", (value) => typeof value === "string" && bits(value) > 0);
const prefix = is("address with a length", (value) => typeof value === "string" && isPrefix(value));

/** Bits of an address; 0 when it is none. Node's own look at it takes a tenth of the time of `core/address`. */
const bits = (value: string): number =>
  value.includes("%") ? 0 : ({ 4: 32, 6: 128 }[isIP(value)] ?? 0);

function isPrefix(value: string): boolean {
  const slash = value.indexOf("/");
  const length = value.slice(slash + 1);
  const most = slash < 0 ? 0 : bits(value.slice(0, slash));
  return most > 0 && /^\d{1,3}$/.test(length) && Number(length) <= most;
}

const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined ? undefined : check(value);

const list =
  (check: Check): Check =>
  (value) => {
    if (!Array.isArray(value)) return " is no list";
    for (let i = 0; i < value.length; i++) {
      const wrong = check(value[i]);
      if (wrong !== undefined) return `[${i}]${wrong}`;
    }
    return undefined;
  };

const fields = (checks: Readonly<Record<string, Check>>): Check => {
  const all = Object.entries(checks);
  return (value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return " is no object";
    for (const [name, check] of all) {
      const wrong = check((value as Record<string, unknown>)[name]);
      if (wrong !== undefined) return `.${name}${wrong}`;
    }
    return undefined;
  };
};

const record = fields({});

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

const vm = fields({
  podId: text,
  vcpu: whole,
  memoryMib: whole,
  kernel: optional(text),
  initrd: optional(text),
  cmdline: text,
  disks: list(disk),
  imagesWithin: optional(list(text)),
  writeWithin: optional(list(text)),
  seed: optional(fields({ volume: text, files: record })),
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
      dnsBefore: optional(dns),
    }),
  ),
});

/** An earlier podnetd's interfaces had one gateway at most, as text. */
const networkInterface = fields({
  position: whole,
  network: optional(text),
  bridge: optional(text),
  addresses: list(prefix),
  gateways: optional(list(fields({ gateway: ip }))),
  gateway: optional(ip),
  mtu: whole,
  guestName: text,
  nic: optional(nic),
  answeredBy: optional(list(ip)),
  cni: optional(cni),
});

const port = fields({
  tap: text,
  bridge: text,
  guestMac: text,
  guestAddresses: list(prefix),
  alias: text,
  isolated: flag,
  mtu: whole,
});

const reachedAt = fields({
  protocol: text,
  hostIp: optional(ip),
  hostPort: whole,
  podIp: ip,
  podPort: whole,
  count: whole,
  bridge: text,
});

const published = fields({
  protocol: text,
  hostPort: whole,
  podPort: whole,
  count: whole,
  at: list(fields({ hostIp: ip, podIp: ip })),
});

const plan = fields({
  podId: text,
  name: text,
  vm,
  argv: list(text),
  interfaces: list(networkInterface),
  ports: fields({
    key: text,
    ports: list(port),
    published: optional(list(reachedAt)),
    withdrawn: optional(list(reachedAt)),
    sources: optional(list(fields({ tap: text, address: ip }))),
  }),
  published: optional(list(published)),
  guest: fields({
    requestId: text,
    dns: optional(dns),
    interfaces: list(fields({ mac: text, name: text, addresses: list(prefix) })),
    loopback: optional(list(prefix)),
    routes: list(route),
    neighbours: list(neighbour),
  }),
});

const spec = fields({
  labels: record,
  resources: fields({ vcpu: whole, memoryMib: whole }),
  boot: fields({ cmdline: text, disks: list(fields({ path: text })) }),
  interfaces: list(record),
  routes: list(fields({ destination: text })),
  ports: optional(list(fields({ hostPort: whole, podPort: whole, count: whole }))),
});

/**
 * What is wrong with a plan as it was stored; undefined when podnetd can work with it. Looks at what is worked with, of plans of
 * earlier podnetds too; and at whose it is, for by its paths things are ended and removed.
 */
export function planTrouble(stored: unknown): string | undefined {
  const wrong = plan(stored);
  if (wrong !== undefined) return `plan${wrong}`;
  const {
    podId,
    vm: machine,
    ports,
  } = stored as {
    readonly podId: string;
    readonly vm: {
      readonly podId: string;
      readonly runDir: string;
      readonly jail?: { readonly cgroups: readonly { readonly path: string }[] };
    };
    readonly ports: { readonly key: string };
  };
  if (machine.podId !== podId || ports.key !== podId) return "plan is of two pods";
  const its = [machine.runDir, ...(machine.jail?.cgroups ?? []).map(({ path }) => path)];
  const other = its.find((path) => !path.endsWith(`/${podId}`));
  return other === undefined ? undefined : `plan names "${other}", which is none of its pod's`;
}

const observed = fields({
  hostname: text,
  interfaces: list(fields({ name: text, mac: text, mtu: whole, addresses: list(text) })),
  loopback: optional(list(text)),
  routes: list(route),
});

/** The same of what was asked for. */
export const specTrouble = (stored: unknown): string | undefined => named("spec", spec(stored));

/** The same of what a guest last said it has. */
export const observedTrouble = (stored: unknown): string | undefined =>
  named("observed", observed(stored));

const named = (what: string, wrong: string | undefined): string | undefined =>
  wrong === undefined ? undefined : `${what}${wrong}`;
