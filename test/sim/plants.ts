import { TeardownQueue } from "../../daemon/containers/teardown-queue.ts";
import { KeyedLock } from "../../daemon/reconcile/keyed-lock.ts";
import type { NodeParts } from "../../daemon/main/node.ts";
import { templateNicMac } from "../../hypervisor/driver.ts";
import type { AttachmentKernel } from "../../network/containers/kernel.ts";
import type { Nftables } from "../../linux/nftables/libnftables.ts";
import type { ElementChange } from "../../linux/nftables/set-elements.ts";
import type { Plant } from "./daemon-life.ts";

/** Faults put in on purpose: each takes one thing out of what undoes. */
export const plants: Readonly<Record<string, Plant>> = {
  /** A failed create's taps stay open. */
  "tap.close": (parts) => ({
    ...parts,
    openTap: (name) => {
      const tap = parts.openTap(name);
      return { ...tap, close: () => Promise.resolve() };
    },
  }),
  /** What an earlier daemon started is not ended. */
  "vm.reap": (parts) => ({ ...parts, driver: { ...parts.driver, reap: () => Promise.resolve() } }),
  /** Machines that waited when the daemon was killed wait for ever. */
  "pool.sweep": (parts) => ({
    ...parts,
    driver: {
      ...parts.driver,
      // (What has no row is swept by a plan without memory.)
      reap: (record, plan) =>
        plan.memoryMib === 0 ? Promise.resolve() : parts.driver.reap(record, plan),
    },
  }),
  /** Machines of the pool that are to end run on. */
  "pool.end": (parts) => ({
    ...parts,
    driver: {
      ...parts.driver,
      start: async (plan, signal, tapFd) => {
        const vm = await parts.driver.start(plan, signal, tapFd);
        return plan.nic?.mac === templateNicMac ? { ...vm, stop: () => Promise.resolve() } : vm;
      },
    },
  }),
  /** The host goes on believing in the addresses of pods that are gone. */
  "port.forget": (parts) => withNetlink(parts, { deleteNeighbour: () => Promise.resolve(true) }),
  /** A pod's way to its new decisions is taken away first, and given in a change of its own. */
  "policy.gap": (parts) =>
    withNftables(parts, (opened) => ({
      commit: async (what, commands) => {
        const lines = commands.split("\n");
        const away = lines.filter((line) => line.startsWith("delete element inet podnet_policy"));
        if (away.length === 0 || away.length === lines.length) return opened.commit(what, commands);
        await opened.commit(what, away.join("\n"));
        await opened.commit(what, lines.filter((line) => !away.includes(line)).join("\n"));
      },
      change: async (what, table, changes) => {
        const away = changes.filter(({ verb }) => verb === "delete");
        const ours = table === "inet podnet_policy" && away.length > 0;
        const isSplit = ours && away.length < changes.length;
        if (isSplit) await opened.change(what, table, away);
        await opened.change(what, table, isSplit ? changes.filter(isAdded) : changes);
      },
    })),
  /** What policies do not decide about any more stays in the kernel. */
  "policy.remove": (parts) =>
    withNftables(parts, ({ commit, change }) => ({
      change: (what, table, changes) => {
        const left = table === "inet podnet_policy" ? changes.filter(isAdded) : changes;
        return left.length === 0 ? Promise.resolve() : change(what, table, left);
      },
      commit: (what, commands) => {
        const removal = /^delete (?:element|chain) inet podnet_policy/;
        const lines = commands.split("\n").filter((line) => !removal.test(line));
        return lines.length === 0 ? Promise.resolve() : commit(what, lines.join("\n"));
      },
    })),
  /** Links that bear our mark and have no row stay. */
  sweep: (parts) => withNetlink(parts, { deleteLink: () => Promise.resolve(true) }),
  /** An ADD that fails leaves its row, its address and its link. */
  "cni.undo": (parts) => {
    TeardownQueue.prototype.undo = () => Promise.resolve();
    return parts;
  },
  /** A container whose DEL was answered goes on sending. */
  "cni.defer": (parts) =>
    withAttachments(parts, (netlink) => ({
      tryBatch: (requests) =>
        netlink.tryBatch(requests.filter(({ what }) => !what.includes("group"))),
    })),
  /** The links of those that went stay, down and off their bridges. */
  "cni.sweep": (parts) =>
    withAttachments(parts, () => ({ deleteGroup: () => Promise.resolve(true) })),
  /** A container has its link and its address, and no way out. */
  "cni.inside": (parts) =>
    withAttachmentKernel(parts, (kernel) => ({
      ...kernel,
      open: (path) => {
        const inside = kernel.open(path);
        const { tryBatch } = inside.netlink;
        const netlink: typeof inside.netlink = {
          ...inside.netlink,
          tryBatch: (requests) => tryBatch(requests.filter(({ what }) => !what.includes("route"))),
        };
        return Object.assign(inside, { netlink });
      },
    })),
  /** What is asked for one container overlaps. */
  "cni.turns": (parts) => {
    KeyedLock.prototype.run = function <T>(key: unknown, body: () => Promise<T>): Promise<T> {
      return /^c\d$/.test(String(key)) ? body() : (inTurn.call(this, key, body) as Promise<T>);
    };
    return parts;
  },
};

const isAdded = ({ verb }: ElementChange): boolean => verb !== "delete";

const inTurn = KeyedLock.prototype.run;

function withAttachments(
  parts: NodeParts,
  instead: (netlink: AttachmentKernel["netlink"]) => Partial<AttachmentKernel["netlink"]>,
): NodeParts {
  return withAttachmentKernel(parts, (kernel) => ({
    ...kernel,
    netlink: { ...kernel.netlink, ...instead(kernel.netlink) },
  }));
}

function withAttachmentKernel(
  parts: NodeParts,
  instead: (kernel: AttachmentKernel) => AttachmentKernel,
): NodeParts {
  const { attachmentKernel: kernel } = parts;
  return kernel === undefined ? parts : { ...parts, attachmentKernel: instead(kernel) };
}

function withNftables(
  parts: NodeParts,
  instead: (opened: Nftables) => Partial<Nftables>,
): NodeParts {
  const { kernel } = parts;
  if (kernel === undefined) return parts;
  const { nftables } = kernel;
  const open = (): Nftables => {
    const opened = nftables.open();
    return { ...opened, ...instead(opened) };
  };
  return { ...parts, kernel: { ...kernel, nftables: { ...nftables, open } } };
}

function withNetlink(
  parts: Parameters<Plant>[0],
  instead: Partial<NonNullable<Parameters<Plant>[0]["kernel"]>["netlink"]>,
): ReturnType<Plant> {
  const { kernel } = parts;
  if (kernel === undefined) return parts;
  return { ...parts, kernel: { ...kernel, netlink: { ...kernel.netlink, ...instead } } };
}
