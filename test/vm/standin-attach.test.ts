import { chmodSync, chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { type PodnetError, isPodnetError } from "../../core/errors.ts";
import { startOthersMachine } from "../crash/others-machine.ts";
import { openLab } from "../lab/lab.ts";
import { startPodnetd } from "../lab/podnetd.ts";
import { unprivileged, user } from "../lab/unprivileged.ts";

test("a socket that podnetd's own user may not open is reported before anything is made, with who and which", async (t) => {
  await using lab = await openLab(`attach${process.pid}-`);
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-attach-"));
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  chownSync(directory, user, user);
  await using daemon = await startPodnetd({
    machine: lab.host,
    directory,
    config: 'iptables_variant = "nft"\n[qemu]\nconfine = "off"\n',
    through: unprivileged,
    readyMs: 60_000,
  });
  const client = connectPodnet({ socket: daemon.socket });
  t.teardown(() => client.close());
  await using machine = await startOthersMachine();
  const { qmp, channel, tty } = machine;
  const sockets = { qmpSocket: qmp, channelSocket: channel, ttySocket: tty };
  const attach = () => client.pods.attach({ spec: { name: "theirs" }, ...sockets });
  const refusal = async (): Promise<PodnetError> => {
    const error = await t.throwsAsync(attach());
    if (!isPodnetError(error)) throw error;
    return error;
  };
  const expect = async (field: string, socket: string): Promise<void> => {
    const error = await refusal();
    t.is(error.code, "PERMISSION_DENIED", error.message);
    t.is(error.field, field);
    t.is(error.details["path"], socket);
    t.regex(error.hint ?? "", new RegExp(`user ${user} `));
    t.deepEqual((await client.pods.list({})).pods, []);
  };

  // Made by mkdtemp: no other user may search it.
  await expect("channel_socket", channel);
  chmodSync(path.dirname(qmp), 0o755);
  for (const socket of [qmp, channel, tty]) chmodSync(socket, 0o600);
  for (const [field, socket] of [
    ["channel_socket", channel],
    ["tty_socket", tty],
    ["qmp_socket", qmp],
  ] as const) {
    await expect(field, socket);
    chmodSync(socket, 0o666);
  }
  const { pod } = await attach();
  t.is(pod?.state, PodState.RUNNING);
  t.deepEqual(await machine.amiss(1), []);
  await client.pods.detach({ idOrName: "theirs" });
  t.deepEqual(await machine.amiss(0), []);
});
