import type { ExecutionContext } from "ava";
import { parseIp } from "../../core/address.ts";
import type { ExecRequest, Guest } from "../../guest-init/channel/guest.ts";
import type { GuestContainers } from "../../guest-init/channel/containers.ts";
import type { MainProcessListener } from "../../guest-init/channel/main-process.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import type { StartContainer } from "../../guest-init/protocol/container-messages.ts";
import type { ProcessEnd } from "../../guest-init/protocol/main-process.ts";
import { openHotDisk } from "../../hypervisor/disks/disks.ts";
import { firstDiskSlot, type HotDiskPlan, type RunningVm } from "../../hypervisor/driver.ts";
import { busyboxImage } from "../lab/busybox-root.ts";
import { ownNetns } from "../lab/netns.ts";
import { debianGuest, never, type Rig, rig } from "./hypervisor-rig.ts";

// Both ends of the protocol and a real kernel: one machine for all tests of a file, in their order.

export let it: Rig;
export let vm: RunningVm;
export let guest: Guest;
export let containers: GuestContainers;
export let disk: HotDiskPlan;

const open = (reattach: boolean): Guest =>
  openGuest({
    channelPath: vm.socketPath("channel"),
    ttyPath: vm.socketPath("tty"),
    reattach,
  });

/** Starts the machine of a test file, with an image of busybox. */
export async function openMachine(): Promise<void> {
  await ownNetns();
  it = await rig(debianGuest);
  ({ vm } = await it.start());
  guest = open(false);
  await guest.ready(never);
  await guest.configure(
    {
      requestId: "c",
      hostname: "sandbox",
      dns: { servers: [parseIp("10.0.0.53")], search: [], options: [] },
      interfaces: [],
      routes: [],
      neighbours: [],
      waitMs: 0,
    },
    never,
  );
  containers = await guest.containers(never);
  const path = busyboxImage(it.directory);
  disk = { name: "image", path, format: "raw", readOnly: true, slot: firstDiskSlot };
  using file = openHotDisk(disk);
  await vm.plugDisk(disk, file.fd, never);
}

export async function closeMachine(): Promise<void> {
  await guest?.close();
  await it?.[Symbol.asyncDispose]();
}

export const started = (id: string, args: readonly string[]): StartContainer => ({
  id,
  args,
  env: [],
  groups: [],
  workdir: "/",
  terminal: false,
  stdin: false,
  readOnly: false,
  noNewPrivileges: false,
  maskedPaths: [],
  readOnlyPaths: [],
});

export const create = (id: string): Promise<void> =>
  containers.create({ id, disk: "image", addresses: [parseIp("10.0.0.2")], waitMs: 5000 }, never);

/** Everything a container writes, and how it ends. */
export class Output implements MainProcessListener {
  readonly out: Buffer[] = [];
  readonly err: Buffer[] = [];
  readonly #over = Promise.withResolvers<ProcessEnd>();
  readonly over: Promise<ProcessEnd> = this.#over.promise;
  end = 0;

  output(stderr: boolean, data: Uint8Array, at: number): number {
    (stderr ? this.err : this.out).push(Buffer.from(data));
    this.end = at + data.length;
    return data.length;
  }

  ended(end: ProcessEnd): void {
    this.#over.resolve(end);
  }

  get text(): string {
    return Buffer.concat(this.out).toString();
  }
}

/** Runs a script as the first process of a new container, to its end. */
export async function runNew(
  id: string,
  script: string,
  more: Partial<StartContainer> = {},
): Promise<{ readonly text: string; readonly end: ProcessEnd }> {
  await create(id);
  await containers.start({ ...started(id, ["sh", "-c", `exec 2>&1; ${script}`]), ...more }, never);
  const output = new Output();
  await containers.follow(id, 0, output, never);
  const end = await output.over;
  await containers.remove(id, never);
  return { text: output.text.trimEnd(), end };
}

export async function exec(args: readonly string[], more: Partial<ExecRequest> = {}) {
  const request = { args, env: {}, workdir: "", terminal: false, ...more };
  const session = await guest.exec(request, never);
  await session.closeInput();
  let text = "";
  for await (const event of session.events) {
    if (event.kind === "exit") return { text: text.trimEnd(), code: event.code };
    text += Buffer.from(event.data).toString();
  }
  throw new Error("No exit");
}

export const shell = async (script: string): Promise<string> =>
  (await exec(["sh", "-c", script])).text;

/** Nothing of a container is in the guest. */
export async function nothingLeft(t: ExecutionContext): Promise<void> {
  t.is(await shell("grep -c podnet/containers/[^.] /proc/mounts; ls /run/podnet/containers"), "0");
  t.deepEqual(await containers.list(never), []);
}

/** A host that comes back. */
export async function comeBack(t: ExecutionContext): Promise<void> {
  guest = open(true);
  const identity = await guest.ready(never);
  t.true(identity.features?.includes("containers"));
  containers = await guest.containers(never);
}
