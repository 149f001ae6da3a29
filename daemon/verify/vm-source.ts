/**
 * An independent check of a VM's network cards for `podnet verify`: a separate program that queries
 * QEMU through npm's `qemu-qmp`, on the VM's second monitor, and prints JSON. It shares no code
 * with podnet, on purpose.
 *
 *   node daemon/verify/vm-source.ts SOCKET
 *
 * qemu-qmp 0.5.0 matches replies by order and loses the place when one is falsy (an empty string,
 * 0), never calls back when QEMU dies, and has no time limit: hence one query at a time, none with
 * such an answer, and a timer here.
 */
import { basename, dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import QMP from "qemu-qmp";

interface Property {
  readonly name: string;
  readonly type: string;
}
interface PciDevice {
  readonly qdev_id: string;
  readonly bus: number;
  readonly slot: number;
  readonly class_info: { readonly class: number };
  readonly pci_bridge?: { readonly devices?: readonly PciDevice[] };
}

const limitMs = 8000;
/** PCI class of Ethernet controllers. */
const ethernet = 0x0200;

function fail(reason: string): never {
  process.stderr.write(`${reason}\n`);
  process.exit(1);
}

const socket = process.argv[2] ?? fail("usage: vm-source SOCKET");
// A socket address holds 107 bytes, and the directory's path may be longer.
process.chdir(dirname(socket));
setTimeout(() => fail(`QEMU did not answer within ${limitMs} ms`), limitMs).unref();

/** Milliseconds until a monitor is asked again that has no place for another client. */
const againMs = 50;

/** QEMU talks with one client and keeps another one waiting: for all others it is EAGAIN. */
async function connected(): Promise<QMP> {
  for (;;) {
    const monitor = new QMP();
    const refused = await new Promise<Error | null>((resolve) => {
      monitor.connect(basename(socket), resolve);
    });
    if (refused === null) return monitor;
    if ((refused as NodeJS.ErrnoException).code !== "EAGAIN") throw refused;
    await delay(againMs);
  }
}

const qmp = await connected();
// Connecting has removed all listeners for errors.
qmp.on("error", (error: Error) => fail(error.message));
qmp.on("close", () => fail("QEMU closed the monitor"));

function ask(command: string, args: object | null = null): Promise<unknown> {
  return new Promise((resolve, reject) => {
    qmp.execute(command, args, (error, value) => (error === null ? resolve(value) : reject(error)));
  });
}

const propertiesOf = async (path: string): Promise<readonly Property[]> =>
  (await ask("qom-list", { path })) as Property[];

interface Nic {
  readonly id: string;
  readonly driver: string;
  readonly mac: unknown;
  readonly netdev: unknown;
  /** Slot and function on its bus, such as `01.0`; undefined in a QEMU without `legacy-addr`. */
  readonly address: unknown;
}

/** Of a machine that was made before its pod (docs/decisions/0099): the guest has set its MAC. */
const macBeforeItsPod = "06:70:6e:00:00:00";

async function macOf(id: string, given: unknown): Promise<unknown> {
  if (given !== macBeforeItsPod) return given;
  const [filter] = (await ask("query-rx-filter", { name: id })) as { "main-mac": string }[];
  return filter?.["main-mac"];
}

/**
 * The cards in QEMU's object tree: whatever has a MAC and a netdev. Ids are empty for devices made
 * without one.
 */
async function cards(): Promise<Nic[]> {
  const found: Nic[] = [];
  for (const parent of ["/machine/peripheral", "/machine/peripheral-anon"]) {
    for (const child of await propertiesOf(parent)) {
      if (!child.type.startsWith("child<")) continue;
      const path = `${parent}/${child.name}`;
      const names = new Set((await propertiesOf(path)).map(({ name }) => name));
      if (!names.has("mac") || !names.has("netdev")) continue;
      const property = (name: string): Promise<unknown> =>
        names.has(name) ? ask("qom-get", { path, property: name }) : Promise.resolve(undefined);
      found.push({
        id: parent.endsWith("anon") ? "" : child.name,
        driver: child.type.slice("child<".length, -1),
        mac: await macOf(child.name, await property("mac")),
        netdev: await property("netdev"),
        address: await property("legacy-addr"),
      });
    }
  }
  return found;
}

/**
 * Ethernet functions on the PCI buses. A bridge shows its own only once firmware has given it a bus
 * number.
 */
function ethernetFunctions(devices: readonly PciDevice[]): object[] {
  return devices.flatMap((device) => [
    ...(device.class_info.class === ethernet
      ? [{ id: device.qdev_id, bus: device.bus, slot: device.slot }]
      : []),
    ...ethernetFunctions(device.pci_bridge?.devices ?? []),
  ]);
}

const { status } = (await ask("query-status")) as { status: string };
const buses = (await ask("query-pci")) as { devices: readonly PciDevice[] }[];
const nics = await cards();
const pci = ethernetFunctions(buses.flatMap(({ devices }) => devices));
qmp.removeAllListeners("close");
process.stdout.write(JSON.stringify({ status, nics, pci }));
qmp.end();
