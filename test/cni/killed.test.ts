import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { pendingName, renderPending } from "../../cni/protocol/pending.ts";
import { type BootMoment, bootMoment } from "../../linux/processes/boot-moment.ts";
import { until } from "../lab/until.ts";
import { bodyOf, type CniRig, joinCniRig } from "./cni-rig.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await joinCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async (t) => {
  await cni.gone(t);
});

/** Resolves when a process is there no more. */
async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

const portMappings = [{ hostPort: 8082, containerPort: 80, protocol: "tcp" }];
const config = { runtimeConfig: { portMappings, bandwidth: { egressRate: 8_000_000 } } };

for (const point of [
  "commit:claim attachment:before#1",
  "commit:claim attachment:after#1",
  "commit:attached:before#1",
])
  test.serial(
    `podnetd killed at ${point} of an ADD leaves nothing, and the next podnetd attaches`,
    async (t) => {
      const container = await cni.container();
      await cni.rig.restart("stop", { PODNET_FAILPOINTS: `${point}=kill` });
      await t.throwsAsync(cni.ask({ container, config }));
      await cni.rig.restart("kill");
      await cni.converged();
      t.deepEqual(await cni.links(), []);
      t.false(await container.reaches("192.168.123.1"));
      await cni.done({ container, config });
      await container.ping("192.168.123.1");
      await cni.done({ command: "DEL", container, config });
    },
  );

for (const point of [
  "commit:detaching:after#1",
  "commit:forget attachments:before#1",
  "commit:forget attachments:after#1",
])
  test.serial(
    `podnetd killed at ${point} of a DEL has the next one go through with it`,
    async (t) => {
      const container = await cni.container();
      await cni.rig.restart("stop", { PODNET_FAILPOINTS: `${point}=kill` });
      await cni.done({ container, config });
      await container.ping("192.168.123.1");
      await cni.ask({ command: "DEL", container, config }).catch(() => {});
      await ended(cni.rig.daemon.process);
      await cni.rig.restart("kill");
      await cni.converged();
      t.deepEqual(await cni.links(), []);
      t.false(await container.reaches("192.168.123.1"));
      await cni.done({ command: "DEL", container, config });
    },
  );

test.serial(
  "after a kill attached containers have their networks, are what others left of them made whole, and lost ones go",
  async (t) => {
    const [kept, broken, lost] = [
      await cni.container(),
      await cni.container(),
      await cni.container(),
    ];
    for (const container of [kept, broken, lost]) await cni.done({ container });
    await until("plugins after podnet's are taken to be done", () => !cni.mayChange(broken));
    await cni.rig.daemon.kill();
    await kept.ping("192.168.123.1");
    await broken.run("ip", "addr", "flush", "dev", "eth0");
    await cni.lose(lost);
    await cni.rig.restart("kill");
    await kept.ping("192.168.123.1");
    await broken.ping("192.168.123.1");
    t.is((await cni.links()).length, 2);
    for (const container of [kept, broken]) await cni.done({ command: "DEL", container });
  },
);

test.serial(
  "a DEL that came while podnetd was away is done before the next one answers; what was attached since is left",
  async (t) => {
    const [gone, again, stepped] = [
      await cni.container(),
      await cni.container(),
      await cni.container(),
    ];
    for (const container of [gone, again, stepped]) await cni.done({ container });
    const pending = join(cni.rig.directory, "state", "cni-pending");
    await cni.rig.daemon.kill();
    mkdirSync(pending, { recursive: true });
    const leave = (container: typeof gone, atMs: number, moment?: BootMoment): void => {
      const { env, config: stdin } = JSON.parse(bodyOf({ command: "DEL", container }));
      writeFileSync(
        join(pending, pendingName(container.name, "eth0")),
        renderPending(env, stdin, atMs, moment),
      );
    };
    leave(gone, Date.now());
    leave(again, 1);
    // The clock was set back between its ADD and its DEL.
    leave(stepped, 1, bootMoment());
    await cni.rig.restart("kill");
    await cni.done({ command: "STATUS", container: again });
    for (const container of [gone, stepped]) t.false(await container.reaches("192.168.123.1"));
    await again.ping("192.168.123.1");
    t.deepEqual(readdirSync(pending), []);
    await cni.done({ command: "DEL", container: again });
  },
);
