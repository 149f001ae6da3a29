import test from "ava";
import type { Links } from "../../../../guest-init/agent/network/links.ts";
import { NLMSG_ERROR, encodeMessage, parseMessages } from "../../../../linux/rtnetlink/message.ts";

/**
 * The kernel's netlink as the agent's system calls show it: every request is acknowledged. Counts
 * the calls.
 */
function playKernel(): { calls: number; requests: number } {
  const counted = { calls: 0, requests: 0 };
  const native = {
    socket: () => 5,
    bind: () => 0,
    setOption: () => 0,
    exchange(_fd: number, request: Uint8Array, into: Uint8Array) {
      counted.calls++;
      const acks = parseMessages(request).map(({ seq, payload }) => {
        counted.requests++;
        // struct nlmsgerr: 0 for success, and the header of the request.
        const verdict = new Uint8Array(20);
        new DataView(verdict.buffer).setUint32(4, 16 + payload.length, true);
        const ack = { type: NLMSG_ERROR, flags: 0x100, seq, portId: 0, payload: verdict };
        return encodeMessage(ack);
      });
      return Buffer.concat(acks).copy(into);
    },
  };
  Object.assign(globalThis, { podnetSys: native });
  return counted;
}

test.serial(
  "hundreds of routes and addresses reach the kernel in a few calls, their device looked up once",
  async (t) => {
    const kernel = playKernel();
    const { Netlink } = await import("../../../../guest-init/agent/network/netlink.ts");
    const { Interfaces } = await import("../../../../guest-init/agent/network/interfaces.ts");
    const named: string[] = [];
    const links = {
      netlink: new Netlink(),
      named(name: string) {
        named.push(name);
        return Promise.resolve({ index: named.length, name, mtu: 1500, up: true });
      },
    };
    const interfaces = new Interfaces(links as unknown as Links);
    const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));
    const dest = (i: number): string => `172.${16 + (i >> 8)}.${i & 255}.0/24`;
    const routes = Array.from({ length: 400 }, (_, i) => ({
      dest: dest(i),
      device: `eth${i % 2}`,
    }));
    await interfaces.route(json({ routes }));
    t.deepEqual(named, ["eth0", "eth1"]);
    t.is(kernel.requests, 400);
    t.true(kernel.calls <= 8, `${kernel.calls} calls`);
    const address = (i: number): string => `10.2.${i >> 8}.${i & 255}`;
    const ipAddresses = Array.from({ length: 1000 }, (_, i) => ({
      ipAddress: address(i),
      netMask: "32",
    }));
    await interfaces.setup(json({ device: "eth0", ipAddresses }));
    t.is(kernel.requests, 1400);
    t.true(kernel.calls <= 8 + 16, `${kernel.calls} calls`);
  },
);
