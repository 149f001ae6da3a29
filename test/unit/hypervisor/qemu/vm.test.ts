import { createServer } from "node:net";
import { dirname, join } from "node:path";
import test from "ava";
import { podIdFromBytes } from "../../../../core/names.ts";
import { QemuVm } from "../../../../hypervisor/qemu/vm.ts";
import { bootId, processStartTime } from "../../../../linux/processes/proc.ts";
import { type HostileConnection, startHostileQmp } from "../../../peers/hostile-qmp.ts";

const never = new AbortController().signal;

/** Answers as a QEMU with a guest that runs and no NIC; `refused` is a command it refuses. */
async function serve(peer: HostileConnection, refused?: string): Promise<void> {
  await peer.negotiate();
  for (;;) {
    const { id, execute } = await peer.nextCommand();
    if (execute === refused) peer.send({ error: { class: "GenericError", desc: "busy" }, id });
    else if (execute === "qom-list") peer.send({ return: [], id });
    else peer.send({ return: { status: "running", running: true }, id });
  }
}

test("a new session that cannot be used is closed before the next is opened", async (t) => {
  const peers: HostileConnection[] = [];
  await using server = await startHostileQmp(async (peer) => {
    // As QEMU, which greets a client when the one before has left.
    await peers.at(-1)?.left();
    peers.push(peer);
    await serve(peer, peers.length === 2 ? "qom-list" : undefined);
  });
  const runDir = dirname(server.path);
  const console = createServer((socket) => socket.on("error", () => {}));
  await new Promise<void>((resolve) => console.listen(join(runDir, "console.sock"), resolve));
  const connected = Promise.withResolvers<void>();
  let sessions = 0;
  const vm = await QemuVm.open(
    {
      // This process stands for the QEMU: all that is asked is whether it runs.
      record: {
        pid: process.pid,
        startTime: processStartTime(process.pid) ?? "",
        bootId: bootId(),
        uid: 0,
        runDir,
      },
      plan: {
        podId: podIdFromBytes(new Uint8Array(12)),
        vcpu: 1,
        memoryMib: 128,
        kernel: "/kernel",
        initrd: "/initrd",
        cmdline: "",
        disks: [],
        runDir,
      },
      ended: undefined,
      socketMs: 1000,
      unplugMs: 1000,
      log: (level, message, { reason }) => {
        if (level === "warn" && message.startsWith("Cannot connect"))
          connected.reject(new Error(String(reason)));
        if (message.startsWith("Connected") && ++sessions === 2) connected.resolve();
      },
    },
    never,
  );
  try {
    peers[0]?.end();
    await t.notThrowsAsync(connected.promise);
    t.is(peers.length, 3);
    t.deepEqual(await vm.nics(never), []);
  } finally {
    await vm.detach();
    await new Promise((resolve) => console.close(resolve));
  }
});
