import { closeSync, openSync } from "node:fs";
import test from "ava";
import { restoreState, saveState } from "../../../../hypervisor/factory/state.ts";
import { QmpClient } from "../../../../hypervisor/qmp/client.ts";
import { type HostileConnection, startHostileQmp } from "../../../peers/hostile-qmp.ts";

const event = (status: string) => ({
  event: "MIGRATION",
  data: { status },
  timestamp: { seconds: 0, microseconds: 0 },
});

/** Answers every command, then does the given action after the last one. */
async function answering(
  peer: HostileConnection,
  seen: string[],
  then: (peer: HostileConnection) => void,
): Promise<void> {
  await peer.negotiate();
  const migrate = "migrate or migrate-incoming";
  for (const _ of ["migrate-set-parameters", "migrate-set-capabilities", "getfd", migrate]) {
    const { id, execute, arguments: args } = await peer.nextCommand();
    seen.push(`${execute} ${JSON.stringify(args)}`);
    peer.send({ return: {}, id });
  }
  then(peer);
}

const outcomes: readonly [what: string, then: (peer: HostileConnection) => void, code?: string][] =
  [
    ["completed", (peer) => ["setup", "active", "completed"].forEach((s) => peer.send(event(s)))],
    ["failed", (peer) => peer.send(event("failed")), "QMP_FAILED"],
    ["cancelled", (peer) => peer.send(event("cancelled")), "QMP_FAILED"],
    ["QEMU ends", (peer) => peer.end(), "QEMU_EXITED"],
  ];

for (const [what, then, code] of outcomes) {
  test(`a state is saved and restored by a descriptor's name; ${what}`, async (t) => {
    const fd = openSync("/dev/null", "r+");
    t.teardown(() => closeSync(fd));
    for (const [act, command] of [
      [saveState, "migrate"],
      [restoreState, "migrate-incoming"],
    ] as const) {
      const seen: string[] = [];
      await using server = await startHostileQmp((peer) => answering(peer, seen, then));
      using qmp = await QmpClient.open(server.path);
      const acting = act(qmp, fd, AbortSignal.timeout(5000));
      if (code === undefined) await acting;
      else await t.throwsAsync(acting, { code });
      t.deepEqual(seen, [
        'migrate-set-parameters {"announce-rounds":0}',
        'migrate-set-capabilities {"capabilities":[{"capability":"x-ignore-shared","state":true},{"capability":"events","state":true}]}',
        'getfd {"fdname":"state"}',
        `${command} {"uri":"fd:state"}`,
      ]);
    }
  });
}

test("a wait for QEMU that says no more is given up with its caller", async (t) => {
  const fd = openSync("/dev/null", "r+");
  t.teardown(() => closeSync(fd));
  const caller = new AbortController();
  await using server = await startHostileQmp((peer) => answering(peer, [], () => caller.abort()));
  using qmp = await QmpClient.open(server.path);
  await t.throwsAsync(restoreState(qmp, fd, caller.signal), { code: "CANCELLED" });
});
