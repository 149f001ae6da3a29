import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { standInQemu } from "../lab/standin.ts";

/** A foreign machine alongside podnetd, with a NIC of its owner's. */
export interface OthersMachine extends AsyncDisposable {
  readonly qmp: string;
  readonly channel: string;
  readonly tty: string;
  /** What is wrong with it, given how many NICs it has of podnet's. */
  amiss(podnets: number): Promise<readonly string[]>;
}

const owners = "nic0";

/** Its sockets. podnetd's connection to the first is an effect by this name. */
const sockets = { qmp: "monitor", own: "own", channel: "channel", tty: "tty" } as const;

const socket = (id: string, name: string): string[] => [
  "-chardev",
  `socket,id=${id},path=${name},server=on,wait=off`,
];

const words: readonly string[] = [
  ["-nodefaults", "-display", "none", "-machine", "q35", "-m", "size=128M", "-smp", "1"],
  [...socket("qmp", sockets.qmp), "-mon", "chardev=qmp,mode=control"],
  [...socket("own", sockets.own), "-mon", "chardev=own,mode=control"],
  ["-device", "pcie-pci-bridge,id=bridge1", "-device", "virtio-serial-pci,id=serial0"],
  [...socket("channel0", sockets.channel), "-device", "virtserialport,id=channel0,bus=serial0.0"],
  [...socket("channel1", sockets.tty), "-device", "virtserialport,id=channel1,bus=serial0.0"],
  ["-device", `virtio-net-pci,id=${owners},bus=bridge1,addr=0x1`],
].flat();

/**
 * Starts one, a stand-in, and waits for its monitors. It works where no inventory looks: it is no
 * part of podnet.
 */
export async function startOthersMachine(): Promise<OthersMachine> {
  const directory = mkdtempSync(path.join(tmpdir(), "others-"));
  const at = (name: keyof typeof sockets): string => path.join(directory, sockets[name]);
  const child = spawn(standInQemu, words, { cwd: directory, stdio: "ignore" });
  const end = once(child, "exit");
  const runs = (): boolean => child.exitCode === null && child.signalCode === null;
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    if (runs()) await end;
    rmSync(directory, { recursive: true, force: true });
  };
  const nics = async (): Promise<string[]> => {
    using qmp = await QmpClient.open(at("own"));
    const devices = await qmp.execute("qom-list", { path: "/machine/peripheral" });
    return devices.filter(({ type }) => type === "child<virtio-net-pci>").map(({ name }) => name);
  };
  try {
    for (let attempt = 1; ; attempt++)
      try {
        await nics();
        break;
      } catch (thrown) {
        if (!isPodnetError(thrown, "SYSCALL_FAILED") || attempt === 500 || !runs()) throw thrown;
        await delay(10);
      }
  } catch (thrown) {
    await stop();
    throw thrown;
  }
  return {
    qmp: at("qmp"),
    channel: at("channel"),
    tty: at("tty"),
    async amiss(podnets) {
      if (!runs()) return ["the foreign machine has ended"];
      const found = await nics();
      const right = found.includes(owners) && found.length === podnets + 1;
      return right ? [] : [`the foreign machine has the NICs ${found.join(", ")}`];
    },
    [Symbol.asyncDispose]: stop,
  };
}
