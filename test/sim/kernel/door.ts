import type { Family } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { IfName } from "../../../core/names.ts";
import type { Tap } from "../../../linux/tun.ts";
import { type IptablesPrograms, variantName } from "../../../network/kernel/iptables-programs.ts";
import type { HostKernel, HostNetlink, HostSysctl } from "../../../network/kernel/kernel.ts";
import { newIfb } from "../../../linux/rtnetlink/links/link-requests.ts";
import { Errno } from "./errno.ts";
import { RestoreRefused } from "./iptables.ts";
import type { FakeKernel } from "./kernel.ts";
import { showAddress } from "./links.ts";
import { bornBy, requestsDoor } from "./requests-door.ts";
import type { ElementChange } from "../../../linux/nftables/set-elements.ts";
import { NftRefused } from "./nftables.ts";

/** Who lets calls through: when, late, never, or with an error of its own instead. */
export interface Doorkeeper {
  /** A call that is done when it returns. */
  now<T>(call: string, body: () => T): T;
  /** A call that takes its time. */
  later<T>(call: string, body: () => T, signal?: AbortSignal): Promise<T>;
}

/** Lets everything through at once. */
export const openDoor: Doorkeeper = {
  now: (_call, body) => body(),
  // oxlint-disable-next-line typescript/require-await -- what the body throws is to be a rejection
  later: async (_call, body) => body(),
};

/** The fake as podnet's rooms see a kernel, with the errors they would get. */
export const kernelDoor = (fake: FakeKernel, keeper: Doorkeeper, identity: string): HostKernel => ({
  netlink: netlinkDoor(fake, keeper),
  iptables: iptablesDoor(fake, 4, keeper),
  ip6tables: iptablesDoor(fake, 6, keeper),
  nftables: nftablesDoor(fake, keeper),
  // Nothing answers there.
  conntrack: {
    flows: (side) => keeper.later(`netlink list flows ${side}`, () => []),
    forget: () => keeper.later("netlink forget flows", () => {}),
    close: () => Promise.resolve(),
  },
  // No packets pass there.
  openTrace: () => {
    throw new PodnetError("UNSUPPORTED", "The simulated kernel traces no packets");
  },
  sysctl: sysctlDoor(fake, keeper),
  identity,
});

function nftablesDoor({ nftables }: FakeKernel, keeper: Doorkeeper): HostKernel["nftables"] {
  const call = <T>(what: string, body: () => T): Promise<T> =>
    keeper.later(`nftables ${what}`, () => {
      try {
        return body();
      } catch (thrown) {
        if (!(thrown instanceof NftRefused)) throw thrown;
        throw new PodnetError("FIREWALL_FAILED", `nftables, ${what}: ${thrown.message}`, {
          details: { nft: thrown.message },
        });
      }
    });
  return {
    open: () => ({
      commit: (what, commands) => call(what, () => nftables.commit(commands)),
      change: (what, table, changes) =>
        call(what, () => nftables.commit(changeCommands(table, changes))),
      get: (what, command) => call(what, () => nftables.get(command)),
      list: (what, command) => call(what, () => nftables.list(command)),
      close: () => {},
    }),
    openCounter: () => ({
      read: () => keeper.now("nftables generation", () => nftables.generation),
      close: () => {},
    }),
  };
}

/** In nft's language, as libnftables would be given them. */
export const changeCommands = (table: string, changes: readonly ElementChange[]): string =>
  changes
    .map(({ verb, set, key, value, comment }) => {
      const said = comment === undefined ? "" : ` comment "${comment}"`;
      const leads = value === undefined ? "" : ` : ${value}`;
      return `${verb} element ${table} ${set.name} { ${key}${said}${leads} }`;
    })
    .join("\n");

/** What `delete…` of the real one takes for absence. */
export const absent: readonly string[] = ["ENODEV", "EADDRNOTAVAIL", "ESRCH", "ENOENT"];

function netlinkDoor(fake: FakeKernel, keeper: Doorkeeper): HostNetlink {
  const { links } = fake;
  const requests = requestsDoor(fake, noNamespace, keeper);
  const ask = <T>(what: string, body: () => T): Promise<T> =>
    keeper.later(`netlink ${what}`, () => translated("NETLINK_FAILED", `Cannot ${what}`, body));
  const remove = (what: string, body: () => void): Promise<boolean> =>
    ask(what, () => {
      try {
        body();
        return true;
      } catch (thrown) {
        if (thrown instanceof Errno && absent.includes(thrown.code)) return false;
        throw thrown;
      }
    });
  const shown = (): ReturnType<typeof links.show>[] =>
    Array.from(links.all.values(), (link) => links.show(link));
  const door: HostNetlink = {
    ...requests,
    addIfb: (wanted) => bornBy(door, requests, newIfb(wanted), wanted),
    links: (filter) => {
      const { group, kind, master } = filter ?? {};
      return ask("list links", () =>
        shown().filter(
          (link) =>
            (group === undefined || link.group === group) &&
            (kind === undefined || link.kind === kind) &&
            (master === undefined || link.master === master),
        ),
      );
    },
    link: (which) =>
      ask(`read ${which}`, () => {
        const found = links.find(which);
        return found === undefined ? undefined : links.show(found);
      }),
    linksNamed: (which) =>
      ask(`read ${which.join(", ")}`, () =>
        which.map((each) => {
          const found = links.find(each);
          return found === undefined ? undefined : links.show(found);
        }),
      ),
    // Two requests, as with the real one: birth, and the alias after it.
    addBridge: async (wanted) => {
      await ask(`add ${wanted.name}`, () => links.addBridge(wanted));
      const { alias } = wanted;
      if (alias !== undefined)
        await ask(`mark ${wanted.name}`, () => links.change(wanted.name, { alias }));
      return ask(`read ${wanted.name}`, () => links.show(links.get(wanted.name)));
    },
    changeLink: (which, change) =>
      ask(`set ${Object.keys(change).join(" ")} of ${which}`, () => links.change(which, change)),
    changeBridge: (which, settings) =>
      ask(`set bridge ${which}`, () => links.changeBridge(which, settings)),
    changeBridgePort: (which, settings) =>
      ask(`set port ${which}`, () => links.setPort(which, settings)),
    portVlans: (index) =>
      ask(`list VLANs of ${index}`, () => {
        const { vlan } = links.get(index);
        return [{ vlan, last: vlan, pvid: true, untagged: true }];
      }),
    setPortVlan: (index, vlan) => ask(`set VLAN of ${index}`, () => links.setVlan(index, vlan)),
    leaveBridge: (which) => remove(`detach ${which}`, () => links.change(which, { master: 0 })),
    setGroup: (indexes, group) =>
      ask(`move ${indexes.join(" ")} to group ${group}`, () => {
        for (const index of indexes) if (links.all.has(index)) links.change(index, { group });
      }),
    deleteLink: (which) => remove(`delete ${which}`, () => links.delete(which)),
    deleteGroup: (group) => remove(`delete group ${group}`, () => links.deleteGroup(group)),
    addresses: (filter) =>
      ask("list addresses", () =>
        [...links.all.values()]
          .filter(({ index }) => filter?.index === undefined || filter.index === index)
          .flatMap((link) => link.addresses.map(({ prefix }) => showAddress(link.index, prefix))),
      ),
    addAddress: (index, prefix) =>
      ask(`add ${prefix} to ${index}`, () => fake.addAddress(index, prefix)),
    deleteAddress: (index, prefix) =>
      remove(`remove ${prefix} of ${index}`, () => fake.deleteAddress(index, prefix)),
    // Neighbours that come with addresses: there are no others here, and whoever looks for them
    // looks at addresses too.
    routes: () => ask("list routes", () => []),
    deleteNeighbour: (index, ip) =>
      remove(`forget ${ip} of ${index}`, () => fake.deleteNeighbour(index, ip)),
    close: () => {},
  };
  return door;
}

/** The host's network makes no links elsewhere. */
const noNamespace = (): never => {
  throw new Errno("EBADF");
};

function iptablesDoor(fake: FakeKernel, family: Family, keeper: Doorkeeper): IptablesPrograms {
  const tables = family === 4 ? fake.iptables : fake.ip6tables;
  return {
    family,
    save: (variant, signal) =>
      keeper.later(`${variantName(family, variant)}-save`, () => tables[variant].save(), signal),
    restore: (variant, input, signal) => {
      const restore = (): void => {
        try {
          tables[variant].restore(input);
        } catch (thrown) {
          if (!(thrown instanceof RestoreRefused)) throw thrown;
          throw new PodnetError("COMMAND_FAILED", `iptables-restore refuses ${thrown.message}`, {
            details: { stderr: thrown.message, exitCode: 1 },
          });
        }
      };
      const call = `${variantName(family, variant)}-restore ${input.split("\n")[0]}`;
      return keeper.later(call, restore, signal);
    },
    legacyTables: () =>
      keeper.now("read ip_tables_names", () => tables.legacy.tableNames.join("\n")),
    systemDefault: () => "nft",
  };
}

function sysctlDoor(fake: FakeKernel, keeper: Doorkeeper): HostSysctl {
  return {
    read: (key) =>
      keeper.now(`sysctl read ${key}`, () =>
        translated("SYSCALL_FAILED", `Cannot read sysctl "${key}"`, () => fake.readSysctl(key)),
      ),
    write: (key, value) =>
      keeper.now(`sysctl write ${key}=${value}`, () =>
        translated("SYSCALL_FAILED", `Cannot set sysctl "${key}"`, () =>
          fake.writeSysctl(key, value),
        ),
      ),
  };
}

/**
 * Opens a tap of the fake; closing it takes its time, as the last close of a real one does. `held`
 * has the descriptors that are open.
 */
export function tapDoor(
  { links }: FakeKernel,
  keeper: Doorkeeper,
  name: IfName,
  held: Set<number>,
): Tap {
  const fd = keeper.now(`tap open ${name}`, () => {
    const what = `Cannot open tap "${name}"`;
    const opened = translated("SYSCALL_FAILED", what, () => links.openTap(name));
    held.add(opened);
    return opened;
  });
  let closing: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closing ??= keeper.later(`tap close ${name}`, () => {
      held.delete(fd);
      links.closeDescriptor(fd);
    });
    return closing;
  };
  return { fd, fds: [fd], name, close, [Symbol.asyncDispose]: close };
}

function translated<T>(code: "NETLINK_FAILED" | "SYSCALL_FAILED", what: string, body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    if (!(thrown instanceof Errno)) throw thrown;
    throw new PodnetError(code, `${what}: ${thrown.code}`, { details: { errno: thrown.code } });
  }
}
