import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { parseIpPrefix, parseMac } from "../../../core/address.ts";
import { parseIfName } from "../../../core/names.ts";
import { openGuest } from "../../../guest-init/channel/session.ts";
import type { NicPlan } from "../../../hypervisor/driver.ts";
import { Rtnetlink } from "../../../linux/netlink/rtnetlink-socket.ts";
import { openTap } from "../../../linux/tun.ts";
import { debianGuest, never, rig } from "../../../test/vm/hypervisor-rig.ts";

const bridge = parseIfName("bench0");

function nicPlan(slot: number): NicPlan {
  return {
    nicId: `nic${slot}`,
    netdevId: `netdev${slot}`,
    fdName: `fd${slot}`,
    tap: parseIfName(`bench-tap${slot}`),
    mac: parseMac(`52:54:00:00:00:${slot.toString(16).padStart(2, "0")}`),
    slot,
  };
}

/**
 * Milliseconds from plugging a NIC into a running guest to the first ping reply, `count` times on
 * one VM, each time with the guest's configuration already waiting for the NIC, and a ping
 * that waits: its packet leaves as soon as the agent has announced the address. Links are
 * made in this process's own namespace, the sandbox's.
 */
export async function measureHotplug(count: number): Promise<number[]> {
  using rtnetlink = Rtnetlink.open();
  const { index: master } = await rtnetlink.addBridge({ name: bridge, up: true });
  await rtnetlink.addAddress(master, parseIpPrefix("10.77.0.1/24"));
  await using guestRig = await rig(debianGuest);
  const { vm } = await guestRig.start();
  const guest = openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach: false,
  });
  await guest.ready(never);
  const samples: number[] = [];
  for (let round = 0; round < count; round++) {
    const nic = nicPlan(round + 1);
    const address = `10.77.0.${round + 10}`;
    const tap = openTap(nic.tap);
    await rtnetlink.changeLink(nic.tap, { master, up: true });
    const begin = performance.now();
    const configured = guest.configure(
      {
        requestId: `${round}`,
        interfaces: [
          { mac: nic.mac, name: `eth${round}`, addresses: [parseIpPrefix(`${address}/24`)] },
        ],
        routes: [],
        neighbours: [],
        waitMs: 5000,
      },
      never,
    );
    const replied = promisify(execFile)("ping", ["-n", "-c", "1", "-W", "5", address]).then(() =>
      samples.push(performance.now() - begin),
    );
    await Promise.all([vm.plug(nic, tap.fds, never), configured, replied]);
    await tap.close();
    await vm.unplug(nic, never);
  }
  await guest.close();
  await vm.stop({ graceMs: 0 });
  await rtnetlink.deleteLink(master);
  return samples;
}
