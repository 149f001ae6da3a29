/**
 * The lab is right when Debian's own plugins serve Debian's runtimes in it: podnet's are measured
 * by the same.
 */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { containerHostAddresses, openContainerHost } from "../lab/container-host.ts";
import { startContainerd } from "../lab/containerd.ts";
import { Protocol } from "../../daemon/cri/gen/cri_pb.ts";
import {
  answerOfPause,
  askPause,
  buildPauseImage,
  pauseImage,
  pausePort,
} from "../lab/pause-image.ts";
import { openPodman } from "../lab/podman.ts";

const { host: hostAddress, lan: lanAddress } = containerHostAddresses;
const list = {
  cniVersion: "1.0.0",
  name: "reference",
  plugins: [
    {
      type: "bridge",
      bridge: "cni0",
      isGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", subnet: "10.68.0.0/24", routes: [{ dst: "0.0.0.0/0" }] },
    },
    { type: "portmap", capabilities: { portMappings: true }, snat: true },
  ],
};

test("containerd and podman run containers with Debian's plugins in the lab", async (t) => {
  t.timeout(60_000);
  const directory = mkdtempSync(path.join(tmpdir(), "reference-"));
  const image = buildPauseImage(directory);
  await using host = await openContainerHost(path.join(directory, "host"));
  host.writeList("10-reference.conflist", list);
  await using containerd = await startContainerd(host, image);

  await containerd.ctr("run", "--detach", "--cni", "--snapshotter=native", pauseImage, "one");
  t.is(await answerOfPause(host, "10.68.0.2", pausePort), "::ffff:10.68.0.1");
  await containerd.ctr("task", "kill", "one");

  const { podSandboxId } = await containerd.cri.runPodSandbox({
    config: {
      metadata: { name: "web", uid: "1", namespace: "default", attempt: 0 },
      hostname: "web",
      logDirectory: directory,
      portMappings: [{ protocol: Protocol.TCP, containerPort: pausePort, hostPort: 8080 }],
      linux: {},
    },
  });
  const { status } = await containerd.cri.podSandboxStatus({ podSandboxId });
  t.is(status?.network?.ip, "10.68.0.3");
  t.is(await answerOfPause(host.lan, hostAddress, 8080), `::ffff:${lanAddress}`);
  await containerd.cri.stopPodSandbox({ podSandboxId });
  await containerd.cri.removePodSandbox({ podSandboxId });
  await t.throwsAsync(askPause(host.lan, hostAddress, 8080));

  const podman = await openPodman(host, image);
  const publish = `--publish=8081:${pausePort}`;
  await podman("run", "--detach", "--name=two", "--network=reference", publish, pauseImage);
  t.is(await answerOfPause(host.lan, hostAddress, 8081), `::ffff:${lanAddress}`);
  await podman("rm", "--force", "--time=0", "two");
  await t.throwsAsync(askPause(host.lan, hostAddress, 8081));
});
