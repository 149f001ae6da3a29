import test, { type ExecutionContext } from "ava";
import { InterfaceState, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";
import { type Kind, type OthersMachine, startOthers, until, withAgent } from "./attach-rig.ts";

let rig: Rig;
/** It gives back whatever it is given, and serves two tests. */
let withPorts: OthersMachine | undefined;
test.serial.before(async () => {
  rig = await openRig('factory = "cold"\n');
});
test.serial.after.always(async () => {
  await withPorts?.[Symbol.asyncDispose]();
  await rig?.[Symbol.asyncDispose]();
});

/** A machine, which ends with the test unless others have a use for it. */
async function machineFor(t: ExecutionContext, kind: Kind): Promise<OthersMachine> {
  if (kind === "ports") return (withPorts ??= await startOthers(kind));
  const machine = await startOthers(kind);
  t.teardown(() => machine[Symbol.asyncDispose]());
  return machine;
}

test.serial.afterEach.always(async () => {
  for (const { id } of (await rig.client.pods.list({})).pods)
    await rig.client.pods.delete({ idOrName: id, force: true });
});

/** Greets one caller at port 80; comes back once it listens. */
const greeter = `(echo hello | nc -l -p 80) >/dev/null 2>&1 &
  until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':0050 .* 0A '; do sleep 0.05; done`;

for (const kind of ["bridge", "pc", "ports without ACPI", "ports"] as const)
  test.serial(`a foreign machine gets NICs and gives them back: ${kind}`, async (t) => {
    const { client, lab } = rig;
    const machine = await machineFor(t, kind);
    const own = await machine.nics();
    const atFirst = await rig.inventory();
    const { pod } = await client.pods.attach({
      spec: { name: "theirs", ports: [{ podPort: 80, hostPort: 8080 }] },
      ...withAgent(machine),
    });
    t.is(pod?.state, PodState.RUNNING);
    t.is(pod?.vm?.pid, machine.process.pid);
    t.true(pod?.vm?.attached);
    t.is(pod?.vm?.qmpSocket, machine.qmp);
    t.is(pod?.vm?.memoryMib, 128);
    t.is(pod?.interfaces[0]?.state, InterfaceState.CONFIGURED);
    await lab.host.ping(addressOf(pod), 3);
    t.is((await execIn(client, "theirs", "ping", "-c", "1", "192.168.123.1")).code, 0);
    await execIn(client, "theirs", "sh", "-c", greeter);
    t.is(await lab.host.run("bash", "-c", "cat </dev/tcp/127.0.0.1/8080"), "hello\n");
    const { ok, checks } = await client.pods.verify({ idOrName: "theirs" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
    // Its own `ip` is heard: name, MTU and address; and what it says counts.
    t.is(checks.filter(({ source }) => source === "guest").length, 3);
    await execIn(client, "theirs", "ip", "link", "set", "eth0", "mtu", "1400");
    const differs = (await client.pods.verify({ idOrName: "theirs" })).checks.filter(
      (check) => !check.ok,
    );
    t.deepEqual(
      differs.map(({ subject, wanted, found }) => `${subject} ${wanted} ${found}`),
      ["mtu of eth0 in the guest 1500 1400"],
    );
    await execIn(client, "theirs", "ip", "link", "set", "eth0", "mtu", "1500");
    for await (const { pods } of client.pods.stats({ idOrName: "theirs" })) {
      t.true((pods[0]?.machine?.cpuS ?? 0) > 0);
      t.true((pods[0]?.interfaces[0]?.rxPackets ?? 0n) > 0n);
    }

    if (kind !== "ports without ACPI") {
      const more = await client.pods.addInterface({ idOrName: "theirs", interface: {} });
      const second = more.pod?.interfaces[1]?.addresses[0]?.replace(/\/.*/, "") ?? "";
      t.true(await lab.host.reaches(second));
      t.is((await machine.nics()).length, own.length + 2);
      await client.pods.removeInterface({ idOrName: "theirs", guestName: "eth1" });
      t.false(await lab.host.reaches(second));
      t.is((await machine.nics()).length, own.length + 1);
      await lab.host.ping(addressOf(pod));
    }

    t.true((await client.pods.detach({ idOrName: "theirs" })).existed);
    t.true(machine.runs());
    t.deepEqual(await machine.nics(), own);
    t.false((await client.pods.detach({ idOrName: "theirs" })).existed);
    t.deepEqual(await rig.changes(atFirst), []);
    t.notRegex(await machine.inGuest("ip", "address"), /192\.168\.123\./);
  });

test.serial(
  "a pod of a machine without a channel has NICs, and its owner gives them addresses",
  async (t) => {
    const { client, lab } = rig;
    const machine = await machineFor(t, "ports");
    const { pod } = await client.pods.attach({ spec: { name: "bare" }, qmpSocket: machine.qmp });
    t.is(pod?.interfaces[0]?.state, InterfaceState.PLUGGED);
    t.is(pod?.guest?.kind, "none");
    const address = addressOf(pod);
    t.false(await lab.host.reaches(address));
    const mac = pod?.interfaces[0]?.mac ?? "";
    // Its kernel finds the NIC a moment after it is plugged.
    const script = `
    for i in $(seq 40); do
      n=$(grep -l ${mac} /sys/class/net/*/address | cut -d/ -f5); [ -n "$n" ] && break; sleep 0.5
    done
    ip address add ${address}/24 dev $n; ip link set $n up`;
    await machine.inGuest("sh", "-c", script);
    await until(() => lab.host.reaches(address));
    await t.throwsAsync(execIn(client, "bare", "true"), { code: "UNSUPPORTED" });
    const set = client.pods.updateInterface({ idOrName: "bare", guestName: "eth0", mtu: 1400 });
    await t.throwsAsync(set, { code: "UNSUPPORTED" });
    t.is((await machine.nics()).length, 2);
    await client.pods.delete({ idOrName: "bare" });
    t.deepEqual(await machine.nics(), ["nic0"]);
    t.true(machine.runs());
  },
);
