import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parsePodId } from "../../../core/names.ts";
import { openQemuDriver } from "../../../hypervisor/qemu/driver.ts";

const image = path.resolve(import.meta.dirname, "../../../build/image");

/**
 * Milliseconds from starting QEMU to the READY frame on its channel, with nothing of podnet
 * between.
 */
export async function bootByHand(directory: string): Promise<number> {
  const runDir = mkdtempSync(path.join(directory, "hand-"));
  const driver = await openQemuDriver();
  const [program, ...words] = driver.describe({
    podId: parsePodId("aaaaaaaaaaaa"),
    vcpu: 1,
    memoryMib: 128,
    kernel: path.join(image, "vmlinux"),
    initrd: path.join(image, "initramfs.gz"),
    cmdline: "",
    disks: [],
    runDir,
  }) as [string, ...string[]];
  // podnetd starts its machines stopped, to lose nothing of the console; here nothing would say
  // `cont`.
  const args = words.filter((word) => word !== "-S");
  const begin = performance.now();
  const qemu = spawn(program, args, { cwd: runDir, stdio: "ignore" });
  const ended = once(qemu, "exit");
  try {
    await firstByte(path.join(runDir, "channel.sock"));
    return performance.now() - begin;
  } finally {
    qemu.kill("SIGKILL");
    await ended;
    rmSync(runDir, { recursive: true, force: true });
  }
}

/** Resolves when a unix socket, once it is there, delivers its first byte. */
async function firstByte(socketPath: string): Promise<void> {
  for (let tries = 0; tries < 2000; tries++) {
    const socket = connect(socketPath);
    try {
      const signal = AbortSignal.timeout(30_000);
      await once(socket, "connect", { signal });
      await once(socket, "data", { signal });
      return;
    } catch (error) {
      if ((error as Error).name === "AbortError") throw error;
      await delay(5);
    } finally {
      socket.destroy();
    }
  }
  throw new Error(`Nothing came from ${socketPath}`);
}
