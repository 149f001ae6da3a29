import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import type { Guest } from "../../guest-init/channel/guest.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import { kindFor } from "../../hypervisor/argv/machine-kinds.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { debianGuest, never } from "./hypervisor-rig.ts";

/** A machine that this test runs, and podnetd does not. */
export interface OthersMachine extends AsyncDisposable {
  readonly process: ChildProcess;
  readonly qmp: string;
  readonly channel: string;
  readonly tty: string;
  /** Whether it still runs. */
  runs(): boolean;
  /** The ids of its virtio-net-pci devices, by a monitor of the owner's own. */
  nics(): Promise<string[]>;
  /** Asks the owner's monitor. */
  ask(command: "stop" | "cont" | "system_reset"): Promise<void>;
  /** Runs something in its guest by a connection of the owner's own to the agent. */
  inGuest(...words: readonly string[]): Promise<string>;
}

/** Machines with places for NICs, each of its kind, as options of QEMU. */
export const kinds = {
  ports: [
    ["-machine", "q35"],
    [
      "-device",
      "pcie-root-port,id=port1,chassis=1",
      "-device",
      "pcie-root-port,id=port2,chassis=2",
    ],
    // The owner's own NIC: its id and place are not podnet's.
    ["-device", "virtio-net-pci,id=nic0,bus=port1,romfile="],
    ["-device", "pcie-root-port,id=port3,chassis=3"],
  ].flat(),
  "ports without ACPI": [
    ["-machine", "q35", "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"],
    ["-device", "pcie-root-port,id=port1,chassis=1"],
  ].flat(),
  bridge: ["-machine", "q35", "-device", "pcie-pci-bridge,id=bridge1"],
  pc: ["-machine", "pc"],
  "no place": ["-machine", "q35"],
} as const;

export type Kind = keyof typeof kinds;

/** A guest that runs the image's agent, or none: processors that have nothing to do. */
export type OthersGuest = "agent" | "none";

/** Starts a machine as another program would, and waits for its agent where it has one. */
export async function startOthers(
  kind: Kind,
  guest: OthersGuest = "agent",
  more: readonly string[] = [],
): Promise<OthersMachine> {
  const directory = mkdtempSync(join(tmpdir(), "others-"));
  const path = (name: string): string => join(directory, name);
  const socket = (name: string): string => `path=${path(name)},server=on,wait=off`;
  const { kernel, initrd } = debianGuest;
  const channel = (port: 0 | 1): string[] =>
    [
      ["-chardev", `socket,id=c${port},${socket(`channel${port}`)}`],
      ["-device", `virtserialport,chardev=c${port},name=sh.hyper.channel.${port}`],
    ].flat();
  const booted = [
    ["-kernel", kernel, "-initrd", initrd, "-append", kindFor("x86_64").cmdline],
    ["-device", "virtio-serial-pci"],
    channel(0),
    channel(1),
  ].flat();
  const child = spawn(
    "qemu-system-x86_64",
    [
      ["-nodefaults", "-display", "none", "-accel", "tcg,tb-size=64", "-m", "128"],
      kinds[kind],
      ["-qmp", `unix:${path("qmp")},server=on,wait=off`],
      ["-qmp", `unix:${path("own")},server=on,wait=off`],
      guest === "agent" ? booted : [],
      more,
    ].flat(),
    { stdio: "ignore" },
  );
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const runs = (): boolean => child.exitCode === null && child.signalCode === null;
  for (let i = 0; i < 400 && runs() && !existsSync(path("own")); i++) await delay(25);
  const machine: OthersMachine = {
    process: child,
    qmp: path("qmp"),
    channel: path("channel0"),
    tty: path("channel1"),
    runs,
    async nics() {
      using qmp = await QmpClient.open(path("own"));
      const devices = await qmp.execute("qom-list", { path: "/machine/peripheral" });
      return devices
        .filter(({ type }) => type === "child<virtio-net-pci>")
        .map(({ name }) => name)
        .sort();
    },
    async ask(command) {
      using qmp = await QmpClient.open(path("own"));
      await (command === "stop" || command === "cont"
        ? qmp.execute(command, {})
        : qmp.execute("system_reset", {}));
    },
    async inGuest(...words) {
      for (let attempt = 1; ; attempt++) {
        const session = openGuest({
          channelPath: path("channel0"),
          ttyPath: path("channel1"),
          reattach: true,
        });
        try {
          await session.ready(AbortSignal.timeout(30_000));
          return await outputOf(session, words);
        } catch (error) {
          // It may be booting still.
          if (!isPodnetError(error, "AGENT_TIMEOUT") || attempt === 8) throw error;
        } finally {
          await session.close();
        }
      }
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
  try {
    if (guest === "agent") await machine.inGuest("true");
    return machine;
  } catch (error) {
    await machine[Symbol.asyncDispose]();
    throw error;
  }
}

async function outputOf(guest: Guest, args: readonly string[]): Promise<string> {
  const request = { args, env: {}, workdir: "", terminal: false };
  const session = await guest.exec(request, never);
  await session.closeInput();
  let output = "";
  for await (const event of session.events)
    if (event.kind !== "exit") output += Buffer.from(event.data).toString();
  return output;
}

/** How a machine is attached whose agent podnet is to use. */
export const withAgent = ({ qmp, channel, tty }: OthersMachine) => ({
  qmpSocket: qmp,
  channelSocket: channel,
  ttySocket: tty,
});

/** Looks again and again, for twenty seconds. */
export async function until(happened: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 400; i++) {
    if (await happened()) return;
    await delay(50);
  }
  throw new Error("It did not happen");
}
