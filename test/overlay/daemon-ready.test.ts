import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connectPodnet } from "../../api/client.ts";
import { OverlayPhase } from "../../api/gen/podnet/v1/overlay_service_pb.ts";
import { NotifySocket } from "../lab/notify-socket.ts";
import { openOverlaySite } from "../lab/overlay-site.ts";
import { until } from "../lab/until.ts";

const overlay = { Network: "10.77.0.0/16", Backend: { Type: "host-gw" } };

/** What a service manager would hear of every podnetd that is started from now on. */
function listen(t: ExecutionContext): NotifySocket {
  const address = join(mkdtempSync(join(tmpdir(), "podnet-notify-")), "notify");
  // (Of podnetd, which has it of this process; etcd would report itself, too.)
  process.env["NOTIFY_SOCKET"] = address;
  t.teardown(() => delete process.env["NOTIFY_SOCKET"]);
  return new NotifySocket(address);
}

test.serial("podnetd is ready when subnet.env is there, and not before", async (t) => {
  t.timeout(180_000);
  await using site = await openOverlaySite();
  using manager = listen(t);
  await using daemon = await site.start();
  // The API answers for as long as there is no configuration, and the service manager waits.
  using client = connectPodnet({ socket: daemon.socket });
  const { overlays } = await client.overlays.list({});
  t.deepEqual(
    overlays.map(({ phase }) => phase),
    [OverlayPhase.WAITING],
  );
  t.deepEqual(manager.read(), []);
  t.false(existsSync(site.subnetFile));
  await site.configure(overlay);
  const reported = await until(
    "READY=1",
    () => {
      const heard = manager.read();
      return heard.length > 0 && { heard, text: readFileSync(site.subnetFile, "utf8") };
    },
    30_000,
    () => daemon.log(),
  );
  t.deepEqual(reported.heard, ["READY=1"]);
  t.regex(reported.text, /^FLANNEL_SUBNET=10\.77\.\d+\.1\/24$/m);
});

test.serial("a subnet.env that cannot be written is warned of, and podnetd is ready", async (t) => {
  t.timeout(180_000);
  await using site = await openOverlaySite();
  await site.configure(overlay);
  using manager = listen(t);
  const directory = dirname(site.subnetFile);
  mkdirSync(dirname(directory), { recursive: true });
  writeFileSync(directory, "a file where a directory should be");
  await using daemon = await site.start();
  const heard = await until(
    "READY=1",
    () => {
      const reported = manager.read();
      return reported.length > 0 && reported;
    },
    30_000,
    () => daemon.log(),
  );
  t.deepEqual(heard, ["READY=1"]);
  const lines = daemon.log().split("\n");
  const warned = lines.filter((line) => line.includes("Failed to write the overlay's subnet file"));
  t.is(warned.length, 1);
  t.regex(warned[0] ?? "", /Let podnetd write in .*flannel/);
  // Pods have their network all the same, and the file comes when it can.
  using client = connectPodnet({ socket: daemon.socket });
  const { networks } = await client.networks.list({});
  t.regex(networks[0]?.subnets[0]?.gateway ?? "", /^10\.77\.\d+\.1$/);
  rmSync(directory);
  await until("subnet.env", () => existsSync(site.subnetFile));
});
