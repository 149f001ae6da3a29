import * as z from "zod";
import { PodnetError } from "../../core/errors.ts";

/** The output of `host-source.ts`. */
const hostReport = z.strictObject({
  links: z.array(
    z.strictObject({
      name: z.string(),
      index: z.int(),
      up: z.boolean(),
      mtu: z.int(),
      group: z.int(),
      alias: z.string().optional(),
      mac: z.string().optional(),
      /** Name of the bridge it is a port of. */
      master: z.string().optional(),
      /** `bridge`, `tun`, `veth` …; absent for physical links. */
      kind: z.string().optional(),
      isolated: z.boolean().optional(),
      learning: z.boolean().optional(),
      /**
       * Of a bridge port: `7 untagged`, `8 tagged` …, with `not by default` where another one takes
       * frames without a tag.
       */
      vlans: z.array(z.string()).optional(),
    }),
  ),
  addresses: z.array(
    z.strictObject({
      link: z.string().optional(),
      address: z.string().optional(),
      length: z.int(),
    }),
  ),
  routes: z.array(
    z.strictObject({
      destination: z.string(),
      link: z.string().optional(),
      gateway: z.string().optional(),
      table: z.int(),
    }),
  ),
  /** Token buckets. */
  queues: z.array(
    z.strictObject({
      link: z.string(),
      bytesPerSecond: z.number(),
      /** Bytes that a packet costs at least; 0: what it has. */
      leastCost: z.int(),
    }),
  ),
  /** Links whose incoming frames another link takes. */
  redirects: z.array(z.strictObject({ link: z.string(), to: z.string() })),
});

/** The output of `rules-source.ts` about the guard. */
const guardReport = z.strictObject({
  asked: z.boolean(),
  ports: z.array(
    z.strictObject({
      link: z.string(),
      macs: z.array(z.string()),
      addresses: z.array(z.string()),
      senders: z.array(z.string()),
      sets: z.array(z.string()),
    }),
  ),
  directions: z.array(z.string()),
  holders: z.array(
    z.strictObject({
      direction: z.string(),
      bridge: z.string(),
      address: z.string(),
      rules: z.int(),
    }),
  ),
});

/** The output of `rules-source.ts` about services. */
const servicesReport = z.strictObject({
  asked: z.array(z.int()),
  doors: z.array(
    z.strictObject({
      bridge: z.string(),
      protocol: z.string(),
      address: z.string(),
      port: z.int(),
      backends: z.array(z.strictObject({ address: z.string(), port: z.int(), slots: z.int() })),
    }),
  ),
});

/** The output of `vm-source.ts`. */
const vmReport = z.strictObject({
  status: z.string(),
  nics: z.array(
    z.strictObject({
      id: z.string(),
      driver: z.string(),
      mac: z.string(),
      netdev: z.string(),
      address: z.string().optional(),
    }),
  ),
  pci: z.array(z.strictObject({ id: z.string(), bus: z.int(), slot: z.int() })),
});

const port = z.int().min(0).max(65_535);

/** The output of `rules-source.ts`. */
const rulesReport = z.strictObject({
  translations: z.array(
    z.strictObject({
      protocol: z.string(),
      /** Absent: at every address. */
      hostIp: z.string().optional(),
      first: port,
      last: port,
      podIp: z.string(),
      podPort: z.int(),
    }),
  ),
  opened: z.array(
    z.strictObject({
      protocol: z.string(),
      podIp: z.string(),
      first: port,
      last: port,
      /** Packets are not accepted there, but marked so. */
      mark: z.int().min(0).optional(),
      /** Absent: by every bridge. */
      bridge: z.string().optional(),
    }),
  ),
  hairpins: z.array(
    z.strictObject({
      subnet: z.string(),
      bridge: z.string(),
      /** Absent: for all pods there. */
      podIp: z.string().optional(),
    }),
  ),
  /** Marks that are accepted. */
  accepted: z.array(
    z.strictObject({
      mark: z.int().min(0),
      /** Absent: to every bridge. */ bridge: z.string().optional(),
    }),
  ),
});

/** The output of `sockets-source.ts`. */
const socketsReport = z.strictObject({
  sockets: z.array(
    z.strictObject({
      protocol: z.string(),
      ip: z.string(),
      port,
      /** It is the asking process's. */
      own: z.boolean(),
    }),
  ),
});

export type RulesReport = z.infer<typeof rulesReport>;
export type SocketsReport = z.infer<typeof socketsReport>;
export type HostReport = z.infer<typeof hostReport>;
export type GuardReport = z.infer<typeof guardReport>;
export type ServicesReport = z.infer<typeof servicesReport>;
export type VmReport = z.infer<typeof vmReport>;

function parse<T>(schema: z.ZodType<T>, source: string, text: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new PodnetError("COMMAND_FAILED", `Invalid report from the verification source ${source}`, {
    hint: "Try again; if it stays so, report it as a bug of podnet",
    details: { source, said: text.slice(0, 200) },
    cause: result.error,
  });
}

export const parseGuardReport = (text: string): GuardReport => parse(guardReport, "nft", text);
export const parseServicesReport = (text: string): ServicesReport =>
  parse(servicesReport, "nft", text);
export const parseHostReport = (text: string): HostReport => parse(hostReport, "netlink", text);
export const parseVmReport = (text: string): VmReport => parse(vmReport, "qemu-qmp", text);
export const parseRulesReport = (text: string): RulesReport => parse(rulesReport, "of rules", text);
export const parseSocketsReport = (text: string): SocketsReport =>
  parse(socketsReport, "of sockets", text);
