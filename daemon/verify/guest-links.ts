import { isPodnetError } from "../../core/errors.ts";
import type { Guest } from "../../guest-init/channel/guest.ts";
import { machineKindOf } from "../pods/machine/machine-of.ts";
import { type PodPlan, staying, withNic } from "../pods/store/pod-plan.ts";
import { absent, type Check, checker } from "./check.ts";
import { programIn } from "./guest-program.ts";

/** A link of a guest, as its own `ip` shows it. */
export interface GuestLink {
  readonly name: string;
  readonly mtu: number;
  readonly mac: string;
  readonly addresses: readonly string[];
}

/**
 * Reads what `ip -o link` and `ip -o address` print, iproute2's and busybox's alike. Pure; what is
 * no such line is passed over.
 */
export function readGuestLinks(links: string, addresses: string): GuestLink[] {
  const held = addresses.split("\n").flatMap((line) => {
    const [, name, address] = /^\d+: (\S+) +inet6? (\S+)/.exec(line) ?? [];
    return name === undefined || address === undefined ? [] : [{ name, address }];
  });
  return links.split("\n").flatMap((line) => {
    const [, name] = /^\d+: ([^\s:@]+)/.exec(line) ?? [];
    const [, mtu] = / mtu (\d+) /.exec(line) ?? [];
    const [, mac] = / link\/ether ([0-9a-f:]{17})(?: |$)/.exec(line) ?? [];
    if (name === undefined || mtu === undefined || mac === undefined) return [];
    const own = held.filter((each) => each.name === name).map(({ address }) => address);
    return [{ name, mtu: Number(mtu), mac, addresses: own }];
  });
}

/**
 * The NICs of a pod in a foreign machine, where no source has a monitor, as a program of
 * its guest finds them: `ip`. A guest that podnet can run nothing in, or that has no such program,
 * is not asked.
 */
export async function checkGuestLinks(
  { vm, interfaces }: Pick<PodPlan, "vm" | "interfaces">,
  guest: Guest | undefined,
  signal: AbortSignal,
): Promise<Check[]> {
  if (machineKindOf(vm).isOwn || guest === undefined) return [];
  const check = checker("guest");
  let found: readonly GuestLink[];
  try {
    const [links, addresses] = await Promise.all(
      ["link", "address"].map((of) => programIn(guest, ["ip", "-o", of, "show"], signal)),
    );
    if (links === undefined || addresses === undefined) return [];
    found = readGuestLinks(links, addresses);
  } catch (error) {
    // Attached without a tty.
    if (isPodnetError(error, "UNSUPPORTED")) return [];
    if (!isPodnetError(error) || signal.aborted) throw error;
    return [check("links in the guest", "seen", error.message)];
  }
  return withNic(staying(interfaces)).flatMap(({ nic: { mac }, guestName, mtu, addresses }) => {
    const link = found.find((each) => each.mac === mac);
    const name = check(`name of ${mac} in the guest`, guestName, link?.name ?? absent);
    if (link === undefined) return [name];
    return [
      name,
      check(`mtu of ${guestName} in the guest`, mtu, link.mtu),
      ...addresses.map((each) =>
        check(`address ${each} on ${guestName} in the guest`, true, link.addresses.includes(each)),
      ),
    ];
  });
}
