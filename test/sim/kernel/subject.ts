import type { Ip, IpPrefix, Mac } from "../../../core/address.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { unshareNetns } from "../../../linux/namespaces/netns.ts";
import { readSysctl, writeSysctl } from "../../../linux/sysctl.ts";
import { Rtnetlink } from "../../../linux/netlink/rtnetlink-socket.ts";
import { openTap, type Tap } from "../../../linux/tun.ts";
import {
  installedPrograms,
  type IptablesPrograms,
} from "../../../network/kernel/iptables-programs.ts";
import type { IfName } from "../../../core/names.ts";
import type { HostNetlink, HostSysctl } from "../../../network/kernel/kernel.ts";
import { absent, kernelDoor, openDoor, tapDoor } from "./door.ts";
import {
  type Attaching,
  fakeAttaching,
  realAttaching,
  runAttachment,
} from "./attachment-subject.ts";
import { Errno } from "./errno.ts";
import { FakeKernel } from "./kernel.ts";
import type { Operation } from "./sequence.ts";

/** A kernel that sequences are carried out on: the real one of this namespace, or the fake. */
export interface Subject {
  readonly netlink: HostNetlink;
  readonly iptables: IptablesPrograms;
  readonly sysctl: HostSysctl;
  openTap(name: IfName): Tap;
  // What podnet itself does not do, but others do to its links.
  addVeth(name: string, mac: Mac, peer: string, peerMac: Mac): Promise<void>;
  deleteAddress(index: number, prefix: IpPrefix): Promise<boolean>;
  replaceNeighbour(index: number, ip: Ip, mac: Mac): Promise<void>;
  neighbours(): Promise<
    readonly { readonly index: number; readonly ip: Ip; readonly mac: Mac | undefined }[]
  >;
  routes(): Promise<readonly { readonly destination: string; readonly link: number }[]>;
  readonly attaching: Attaching;
}

/**
 * The real kernel, in a new network namespace, which the calling process is in from here on: the
 * kernel ends a whole namespace behind our back, where it would make us wait for the end of each
 * link.
 */
export async function realSubject(): Promise<Subject & Disposable> {
  unshareNetns();
  // A new namespace may inherit these from the host: with them an address's end shows differently.
  for (const place of ["all", "default"])
    writeSysctl(`net.ipv4.conf.${place}.promote_secondaries`, "0");
  const netlink = Rtnetlink.open();
  await netlink.changeLink("lo", { up: true });
  const attaching = realAttaching(netlink);
  return {
    netlink,
    iptables: installedPrograms(4),
    sysctl: { read: readSysctl, write: writeSysctl },
    openTap: (name) => openTap(name),
    addVeth: async (name, mac, peer, peerMac) => {
      await netlink.addVeth({ name, mac, peer: { name: peer, mac: peerMac } });
    },
    deleteAddress: (index, prefix) => netlink.deleteAddress(index, prefix),
    replaceNeighbour: (index, address, mac) => netlink.replaceNeighbour({ index, address, mac }),
    neighbours: async () =>
      (await netlink.neighbours())
        .filter(({ state }) => state === "permanent")
        .map(({ index, address, mac }) => ({ index, ip: address, mac })),
    routes: async () =>
      (await netlink.routes({ table: 254, family: 4 })).map(({ destination, link }) => ({
        destination: String(destination),
        link: link ?? 0,
      })),
    attaching,
    [Symbol.dispose]: () => {
      attaching.end();
      netlink.close();
    },
  };
}

export function fakeSubject(): Subject {
  let macs = 0;
  const randomMac = (): Mac =>
    `06:00:00:00:00:${(macs++ % 256).toString(16).padStart(2, "0")}` as Mac;
  const fake = new FakeKernel(randomMac);
  const door = kernelDoor(fake, openDoor, "fake");
  const asked = async <T>(body: () => T): Promise<T> => {
    try {
      return await Promise.resolve(body());
    } catch (thrown) {
      if (!(thrown instanceof Errno)) throw thrown;
      throw new PodnetError("NETLINK_FAILED", thrown.code, { details: { errno: thrown.code } });
    }
  };
  return {
    ...door,
    openTap: (name) => tapDoor(fake, openDoor, name, new Set()),
    addVeth: (...words) => asked(() => fake.links.addVeth(...words)),
    deleteAddress: (index, prefix) =>
      asked(() => {
        fake.deleteAddress(index, prefix);
        return true;
      }).catch((thrown: unknown) => {
        if (isPodnetError(thrown) && absent.includes(String(thrown.details["errno"]))) return false;
        throw thrown;
      }),
    replaceNeighbour: (index, ip, mac) => asked(() => fake.replaceNeighbour(index, ip, mac)),
    neighbours: () =>
      asked(() =>
        [...fake.links.all.values()].flatMap(({ index, neighbours }) =>
          Array.from(neighbours, ([ip, mac]) => ({ index, ip, mac })),
        ),
      ),
    routes: () => asked(() => fake.connected()),
    attaching: fakeAttaching(fake, randomMac),
  };
}

/** Carries out operations on one subject, and says what came of each. */
export class Runner {
  readonly #subject: Subject;
  readonly #taps = new Map<string, Tap>();

  constructor(subject: Subject) {
    this.#subject = subject;
  }

  async run(operation: Operation): Promise<string> {
    try {
      return String(await this.#do(operation));
    } catch (thrown) {
      if (!isPodnetError(thrown)) throw thrown;
      if (thrown.code === "COMMAND_FAILED") return "refused";
      return String(thrown.details["errno"] ?? thrown.code);
    }
  }

  async end(): Promise<void> {
    await Promise.all(Array.from(this.#taps.values(), (tap) => tap.close()));
  }

  /** An index that no link has stands for a name that none has. */
  async #index(name: string): Promise<number> {
    return (await this.#subject.netlink.link(name))?.index ?? 99_999;
  }

  async #do(operation: Operation): Promise<unknown> {
    const { netlink, iptables, sysctl } = this.#subject;
    const subject = this.#subject;
    switch (operation.kind) {
      case "bridge": {
        const { kind: _kind, ...wanted } = operation;
        await netlink.addBridge(wanted);
        return "ok";
      }
      case "tap": {
        const tap = subject.openTap(operation.name as IfName);
        await this.#taps.get(operation.name)?.close();
        this.#taps.set(operation.name, tap);
        await netlink.changeLink(operation.name, { mac: operation.mac });
        return "ok";
      }
      case "close-tap":
        await this.#taps.get(operation.name)?.close();
        return this.#taps.delete(operation.name);
      case "veth":
        return subject.addVeth(operation.name, operation.mac, operation.peer, operation.peerMac);
      case "change": {
        const { set } = operation;
        // A link is renamed by its index.
        return netlink.changeLink(await this.#index(operation.link), set);
      }
      case "master":
        return netlink.changeLink(operation.link, { master: await this.#index(operation.bridge) });
      case "leave":
        return netlink.leaveBridge(operation.link);
      case "isolate":
        return netlink.changeBridgePort(operation.link, { isolated: operation.isolated });
      case "group": {
        const indexes = await Promise.all(operation.links.map((name) => this.#index(name)));
        return netlink.setGroup(indexes, operation.group);
      }
      case "delete":
        return netlink.deleteLink(operation.link);
      case "delete-group":
        return netlink.deleteGroup(operation.group);
      case "address":
        return netlink.addAddress(await this.#index(operation.link), operation.prefix, {
          noDad: true,
        });
      case "delete-address":
        return subject.deleteAddress(await this.#index(operation.link), operation.prefix);
      case "neighbour":
        return subject.replaceNeighbour(
          await this.#index(operation.link),
          operation.ip,
          operation.mac,
        );
      case "forget":
        return netlink.deleteNeighbour(await this.#index(operation.link), operation.ip);
      case "sysctl":
        sysctl.write(operation.key, operation.value);
        return sysctl.read(operation.key);
      case "restore":
        return iptables.restore(operation.variant, operation.input, AbortSignal.timeout(20_000));
      default:
        return runAttachment(operation, subject);
    }
  }
}
