import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { parsePodId } from "../../../core/names.ts";
import type { ExecRequest, Guest } from "../../../guest-init/channel/guest.ts";
import { openGuest } from "../../../guest-init/channel/session.ts";
import { openQemuDriver } from "../../../hypervisor/qemu/driver.ts";
import { debianGuest } from "../../../test/vm/hypervisor-rig.ts";

const never = new AbortController().signal;

/**
 * The floor: the same machine with one port more, which `cat` and `head` serve in the guest and a
 * bare socket on the host. No frames, no streams, no agent, no API between them.
 */
export interface RawPort extends AsyncDisposable {
  /** Milliseconds until a byte is back. */
  echo(): Promise<number>;
  /** Milliseconds for so many bytes out of the guest. */
  out(bytes: number): Promise<number>;
  /** Milliseconds for so many bytes into it. */
  into(bytes: number): Promise<number>;
}

/** Runs `script` with the port's device as $1, to its end. */
async function inGuest(guest: Guest, script: string): Promise<void> {
  const find =
    'for p in /sys/class/virtio-ports/*; do [ "$(cat $p/name)" = raw ] && set -- /dev/${p##*/}; done';
  const request: ExecRequest = {
    args: ["sh", "-c", `${find}; ${script}`],
    env: {},
    workdir: "/",
    terminal: false,
  };
  const session = await guest.exec(request, never);
  for await (const event of session.events) {
    if (event.kind === "exit" && event.code !== 0) throw new Error(`"${script}": ${event.code}`);
  }
}

/** Starts the machine and its guest. */
export async function openRawPort(directory: string): Promise<RawPort> {
  const runDir = mkdtempSync(path.join(directory, "raw-"));
  mkdirSync(runDir, { recursive: true });
  const driver = await openQemuDriver();
  const [program, ...words] = driver.describe({
    podId: parsePodId("aaaaaaaaaaaa"),
    vcpu: 1,
    memoryMib: 128,
    ...debianGuest,
    cmdline: "",
    disks: [],
    runDir,
  }) as [string, ...string[]];
  const raw = ["-chardev", "socket,id=raw,path=raw.sock,server=on,wait=off"];
  const device = "virtserialport,bus=serial0.0,nr=3,id=raw,chardev=raw,name=raw";
  const args = [...words.filter((word) => word !== "-S"), ...raw, "-device", device];
  const qemu = spawn(program, args, { cwd: runDir, stdio: "ignore" });
  const guest = openGuest({
    channelPath: path.join(runDir, "channel.sock"),
    ttyPath: path.join(runDir, "tty.sock"),
    reattach: false,
  });
  await guest.ready(never);
  const port = (): Socket => connect(path.join(runDir, "raw.sock"));
  return {
    async echo() {
      const socket = port();
      // `cat` waits for a whole byte and writes it as it came; a second one ends it.
      const served = inGuest(guest, "exec 3<>$1; head -c 1 <&3 >&3; head -c 1 <&3 >&3");
      const round = async (): Promise<number> => {
        const begin = performance.now();
        socket.write("x");
        await once(socket, "data");
        return performance.now() - begin;
      };
      // The first finds the guest still at opening its port.
      await round();
      const ms = await round();
      await served;
      socket.destroy();
      return ms;
    },
    async out(bytes) {
      const socket = port();
      const begin = performance.now();
      let left = bytes;
      const all = Promise.withResolvers<void>();
      socket.on("data", (data) => {
        left -= data.length;
        if (left <= 0) all.resolve();
      });
      await Promise.all([
        inGuest(guest, `dd if=/dev/zero bs=50000 count=${bytes / 50_000} > $1`),
        all.promise,
      ]);
      const ms = performance.now() - begin;
      socket.destroy();
      return ms;
    },
    async into(bytes) {
      const socket = port();
      const begin = performance.now();
      const served = inGuest(guest, `head -c ${bytes} < $1 > /dev/null`);
      const chunk = Buffer.alloc(64 * 1024);
      for (let at = 0; at < bytes; at += chunk.length) {
        if (!socket.write(chunk.subarray(0, bytes - at))) await once(socket, "drain");
      }
      await served;
      const ms = performance.now() - begin;
      socket.destroy();
      return ms;
    },
    async [Symbol.asyncDispose]() {
      await guest.close();
      const ended = once(qemu, "exit");
      qemu.kill("SIGKILL");
      await ended;
      rmSync(runDir, { recursive: true, force: true });
    },
  };
}
