import { list, number, object, Refused, required, text } from "./hyperstart-json.ts";

export interface GuestAddress {
  readonly address: number;
  readonly length: number;
}

export interface GuestLink {
  readonly index: number;
  name: string;
  readonly mac: string;
  mtu: number;
  up: boolean;
  addresses: GuestAddress[];
}

export interface GuestRoute {
  readonly destination: number;
  readonly length: number;
  readonly gateway?: number;
  /** Index of the link. */
  readonly link: number;
  /** Set on routes that the kernel made for an address. */
  readonly source?: number;
}

const loopback = 1;

/**
 * What the guest's kernel holds, and the three requests that change it. Like hyperstart, the
 * requests never look at the kernel's answers: what the kernel refuses is acknowledged all the
 * same. Which changes a kernel refuses was compared with a real one (EEXIST, unreachable gateways,
 * host bits in a destination, what a link takes along when it goes down).
 */
export class GuestNetwork {
  links: GuestLink[] = [
    { index: loopback, name: "lo", mac: "00:00:00:00:00:00", mtu: 65536, up: false, addresses: [] },
  ];
  #routes: GuestRoute[] = [];
  #nextIndex = loopback + 1;
  readonly #deviceWaitMs: number;
  readonly #keepsNames: boolean;
  readonly #appeared = new EventTarget();

  /**
   * `keepsNames`: the kernel refuses every new name, as kernels before 6.2 do for a link that is up
   * (EBUSY).
   */
  constructor(deviceWaitMs: number, keepsNames = false) {
    this.#deviceWaitMs = deviceWaitMs;
    this.#keepsNames = keepsNames;
  }

  /**
   * In the kernel's order: by destination, the wider prefix first only if the destination differs.
   */
  get routes(): readonly GuestRoute[] {
    return this.#routes.toSorted((a, b) => a.destination - b.destination || b.length - a.length);
  }

  find(name: string): GuestLink | undefined {
    return this.links.find((link) => link.name === name);
  }

  linkOf(route: GuestRoute): GuestLink {
    return this.links.find(({ index }) => index === route.link) as GuestLink;
  }

  addLink(name: string, mac: string): GuestLink {
    if (this.find(name)) throw new Error(`The guest has a link ${name} already`);
    const link = { index: this.#nextIndex++, name, mac, mtu: 1500, up: false, addresses: [] };
    this.links.push(link);
    this.#appeared.dispatchEvent(new Event(name));
    return link;
  }

  removeLink(link: GuestLink): void {
    this.links = this.links.filter((other) => other !== link);
    this.#routes = this.#routes.filter((route) => route.link !== link.index);
  }

  /** SETUPINTERFACE: addresses, then name, then MTU, then up. */
  async setupInterface(value: unknown): Promise<void> {
    const known = [
      "device",
      "newDeviceName",
      "ipAddresses",
      "mtu",
      // Of API 4242, with one address.
      "ipAddress",
      "netMask",
    ];
    const fields = object(value, known);
    const device = required(fields, "device");
    const newName = text(fields, "newDeviceName");
    const mtu = number(fields, "mtu") ?? 0;
    const addresses = list(fields, "ipAddresses").map((entry) =>
      object(entry, ["ipAddress", "netMask"]),
    );
    if (fields.has("ipAddress")) addresses.push(fields);

    const link = await this.#wait(device);
    for (const entry of addresses) {
      const written = required(entry, "ipAddress");
      const address = parseAddress(written.replace(/^-/, ""));
      const length = parseMask(required(entry, "netMask"));
      if (written.startsWith("-")) this.deleteAddress(link, address, length);
      else this.addAddress(link, address, length);
    }
    // RTM_SETLINK with all flags to be changed and none set: the link goes down, with or without a
    // new name. Whether a name given that is the old one counts was not recorded; here it does,
    // which asks more of the host.
    const taken = newName !== undefined && newName !== device && this.find(newName) !== undefined;
    if (newName !== undefined && !taken && !(this.#keepsNames && newName !== "")) {
      this.down(link);
      if (newName !== "") link.name = newName.slice(0, 15);
    }
    if (mtu !== 0 && mtu >= 68 && mtu <= 65535) {
      this.down(link);
      link.mtu = mtu;
    }
    this.up(link);
  }

  /** SETUPROUTE. */
  async setupRoute(value: unknown): Promise<void> {
    const routes = list(object(value, ["routes"]), "routes").map((entry) => {
      const fields = object(entry, ["dest", "gateway", "device"]);
      const gateway = text(fields, "gateway");
      return {
        ...parseDestination(required(fields, "dest")),
        ...(gateway !== undefined && { gateway: parseAddress(gateway) }),
        device: text(fields, "device"),
      };
    });
    for (const { device, ...route } of routes) {
      const link = device === undefined ? undefined : await this.#wait(device);
      this.addRoute(route, link);
    }
  }

  /** DELETEINTERFACE takes the card off its bus; what is on none cannot go. */
  deleteInterface(value: unknown): void {
    const known = ["device", "newDeviceName", "ipAddresses", "mtu", "ipAddress", "netMask"];
    const link = this.find(required(object(value, known), "device"));
    if (!link || link.index === loopback) throw new Refused("no such device");
    this.removeLink(link);
  }

  up(link: GuestLink): void {
    if (link.up) return;
    link.up = true;
    if (link.index === loopback) this.addAddress(link, parseAddress("127.0.0.1"), 8);
    for (const address of link.addresses) this.#connect(link, address);
  }

  addAddress(link: GuestLink, address: number, length: number): void {
    if (link.addresses.some((held) => held.address === address && held.length === length)) return;
    link.addresses.push({ address, length });
    if (link.up) this.#connect(link, { address, length });
  }

  /**
   * The first address of a subnet takes its seconds along, and the last of a link all its routes.
   */
  deleteAddress(link: GuestLink, address: number, length: number): void {
    const held = link.addresses.find(
      (other) => other.address === address && other.length === length,
    );
    if (!held) return;
    const goes = this.isSecondary(link, held)
      ? (other: GuestAddress) => other === held
      : (other: GuestAddress) => sameSubnet(other, held);
    link.addresses = link.addresses.filter((other) => !goes(other));
    this.#routes = this.#routes.filter(
      (route) =>
        route.link !== link.index || (link.addresses.length > 0 && route.source !== address),
    );
  }

  isSecondary(link: GuestLink, address: GuestAddress): boolean {
    return link.addresses.find((other) => sameSubnet(other, address)) !== address;
  }

  /** Whether the kernel took it. Only the initial state asks. */
  addRoute(route: Omit<GuestRoute, "link">, device?: GuestLink): boolean {
    const { destination, length, gateway } = route;
    if ((destination & ~maskOf(length)) !== 0) return false;
    if (this.#routes.some((held) => held.destination === destination && held.length === length))
      return false;
    // A gateway is within reach when a route without one leads to it.
    const nearby = this.#routes.find(
      (held) =>
        gateway !== undefined &&
        held.gateway === undefined &&
        (device === undefined || held.link === device.index) &&
        isIn(gateway, held.destination, held.length),
    );
    const link = gateway === undefined ? device : nearby && this.linkOf(nearby);
    if (!link?.up) return false;
    this.#routes.push({ ...route, link: link.index });
    return true;
  }

  /** By the guest's own `ip`: hyperstart has no command for it. */
  deleteRoute(route: GuestRoute): void {
    this.#routes = this.#routes.filter((other) => other !== route);
  }

  /**
   * Routes of the link go with it, and not only those by a gateway; those of its addresses come
   * back with it.
   */
  down(link: GuestLink): void {
    if (!link.up) return;
    link.up = false;
    this.#routes = this.#routes.filter((route) => route.link !== link.index);
  }

  #connect(link: GuestLink, held: GuestAddress): void {
    if (link.index === loopback || held.length === 32) return;
    const { address: source, length } = held;
    const destination = (source & maskOf(length)) >>> 0;
    const there = this.#routes.some(
      (route) =>
        route.link === link.index && route.destination === destination && route.length === length,
    );
    if (!there) this.#routes.push({ destination, length, source, link: link.index });
  }

  /** Waits for the kernel to announce the device, and holds the whole agent meanwhile. */
  async #wait(device: string): Promise<GuestLink> {
    const link = this.find(device);
    if (link) return link;
    const announced = Promise.withResolvers<undefined>();
    this.#appeared.addEventListener(device, () => announced.resolve(undefined), { once: true });
    const timer = setTimeout(announced.resolve, this.#deviceWaitMs, undefined);
    await announced.promise;
    clearTimeout(timer);
    const late = this.find(device);
    if (!late) throw new Refused(`no device ${device}`);
    return late;
  }
}

export function maskOf(length: number): number {
  return length === 0 ? 0 : (0xffffffff << (32 - length)) >>> 0;
}

function isIn(address: number, network: number, length: number): boolean {
  return ((address ^ network) & maskOf(length)) === 0;
}

function sameSubnet(a: GuestAddress, b: GuestAddress): boolean {
  return a.length === b.length && isIn(a.address, b.address, b.length);
}

export function formatAddress(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 255).join(".");
}

export function parseAddress(written: string): number {
  const octets = /^\d{1,3}(?:\.\d{1,3}){3}$/.test(written) ? written.split(".").map(Number) : [];
  if (octets.length !== 4 || octets.some((octet) => octet > 255))
    throw new Refused(`bad address ${written}`);
  return octets.reduce((sum, octet) => sum * 256 + octet, 0);
}

/** "255.255.255.0", "24", "0x18", and so "030". */
function parseMask(written: string): number {
  if (written.includes(".")) {
    const mask = parseAddress(written);
    const length = Math.clz32(~mask >>> 0);
    if (mask === maskOf(length)) return length;
  } else if (/^(?:0x[0-9a-f]+|[0-9]+)$/i.test(written)) {
    const length = /^0[0-9]/.test(written) ? Number.parseInt(written, 8) : Number(written);
    if (length <= 32) return length;
  }
  throw new Refused(`bad mask ${written}`);
}

export function parseDestination(dest: string): { destination: number; length: number } {
  if (["default", "any", "all"].includes(dest)) return { destination: 0, length: 0 };
  const [address = "", mask] = dest.split("/");
  return {
    destination: parseAddress(address),
    length: mask === undefined ? 32 : parseMask(mask),
  };
}
