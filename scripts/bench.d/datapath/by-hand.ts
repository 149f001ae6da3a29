import { once } from "node:events";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { parseIp, parseIpPrefix, parseMac, parseCidr } from "../../../core/address.ts";
import { parsePodId } from "../../../core/names.ts";
import { openGuest } from "../../../guest-init/channel/session.ts";
import { openQemuDriver } from "../../../hypervisor/qemu/driver.ts";
import { labAddresses, openLab } from "../../../test/lab/lab.ts";
import { debianGuest } from "../../../test/vm/hypervisor-rig.ts";
import { type End, machineEnd } from "./ends.ts";
import { guestEnd } from "./guest-end.ts";

const { signal } = new AbortController();
const gateway = "192.168.124.1";

/** The ends of one set of machines. */
export interface Ends {
  readonly guests: readonly [End, End];
  readonly host: End;
  readonly outside: End;
}

/**
 * Two guests by the command line that podnet gives QEMU, and a NIC on it with the options that
 * podnet plugs one with, on a bridge made by hand: no rules but the masquerade of what leaves it.
 */
export async function openByHand(
  directory: string,
  program: string,
  opened: AsyncDisposableStack,
): Promise<Ends> {
  const lab = opened.use(await openLab("hand-"));
  const { host } = lab;
  const sh = (script: string) => host.run("sh", "-ec", script);
  await sh(`ip link add hand0 type bridge; ip addr add ${gateway}/24 dev hand0
    ip link set hand0 up; sysctl -qw net.ipv4.ip_forward=1
    iptables -t nat -A POSTROUTING -s 192.168.124.0/24 ! -o hand0 -j MASQUERADE`);
  const driver = opened.use(await openQemuDriver());
  const start = async (number: number): Promise<End> => {
    const runDir = path.join(directory, `hand-${number}`);
    mkdirSync(runDir);
    await sh(
      `ip tuntap add hand${number} mode tap vnet_hdr; ip link set hand${number} master hand0 up`,
    );
    const plan = { vcpu: 1, memoryMib: 128, ...debianGuest, cmdline: "", disks: [], runDir };
    const words = driver
      .describe({ podId: parsePodId(number === 1 ? "aaaaaaaaaaaa" : "bbbbbbbbbbbb"), ...plan })
      .filter((word) => word !== "-S") as [string, ...string[]];
    const mac = parseMac(`52:54:00:00:00:0${number}`);
    const nic = `virtio-net-pci,bus=br0,addr=0x1,netdev=nic,mac=${mac},romfile=`;
    const netdev = `tap,id=nic,ifname=hand${number},script=no,downscript=no`;
    const qemu = host.spawn([...words, "-netdev", netdev, "-device", nic], {
      cwd: runDir,
      // A session of its own, as podnet gives one: Linux divides the processors by session.
      detached: true,
      stdio: ["ignore", "ignore", "inherit"],
    });
    const ended = once(qemu, "exit");
    opened.defer(async () => {
      qemu.kill("SIGKILL");
      await ended;
    });
    const guest = openGuest({
      channelPath: path.join(runDir, "channel.sock"),
      ttyPath: path.join(runDir, "tty.sock"),
      reattach: false,
    });
    opened.defer(() => guest.close());
    await guest.ready(signal);
    const address = `192.168.124.${10 + number}`;
    await guest.configure(
      {
        requestId: "1",
        interfaces: [{ mac, name: "eth0", addresses: [parseIpPrefix(`${address}/24`)] }],
        routes: [
          { destination: parseCidr("0.0.0.0/0"), gateway: parseIp(gateway), interface: "eth0" },
        ],
        neighbours: [],
        waitMs: 10_000,
      },
      signal,
    );
    return guestEnd(
      async (args, stdin) => {
        const request = { args, env: {}, workdir: "/", terminal: false };
        const session = await guest.exec(request, signal);
        await session.write(stdin);
        await session.closeInput();
        return { events: session.events, kill: () => session.signal(9) };
      },
      address,
      program,
    );
  };
  return {
    guests: [await start(1), await start(2)],
    host: machineEnd(host, gateway, program),
    outside: machineEnd(lab.internet, labAddresses.internet, program),
  };
}
