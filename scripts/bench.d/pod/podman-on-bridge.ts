import { openContainerHost } from "../../../test/lab/container-host.ts";
import { openPodman, type Podman } from "../../../test/lab/podman.ts";

/** A host on which podman runs containers on Debian's bridge plugin. */
export interface PodmanOnBridge extends AsyncDisposable {
  readonly podman: Podman;
  /** The name of the network, for `--network`. */
  readonly network: string;
}

/** Opens the host; `buildImage` makes the archive of the image that podman gets. */
export async function openPodmanOnBridge(
  directory: string,
  buildImage: (directory: string) => string,
): Promise<PodmanOnBridge> {
  await using stack = new AsyncDisposableStack();
  const host = stack.use(await openContainerHost(directory));
  const network = "bench";
  host.writeList("87-bench.conflist", {
    cniVersion: "0.4.0",
    name: network,
    plugins: [
      {
        type: "bridge",
        bridge: "bench0",
        isGateway: true,
        ipMasq: true,
        ipam: { type: "host-local", ranges: [[{ subnet: "10.77.0.0/16" }]] },
      },
    ],
  });
  const podman = await openPodman(host, buildImage(directory));
  const held = stack.move();
  return { podman, network, [Symbol.asyncDispose]: () => held.disposeAsync() };
}
