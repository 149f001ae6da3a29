import { connectPodnet, type Podnet } from "../../../api/client.ts";
import type { CniHost } from "../cni/host.ts";
import { cut, type Part, type Stage } from "./timeline.ts";
import type { Watched } from "./watched.ts";

const addStages: readonly Stage[] = [
  {
    title: "plugin starts, request read",
    until: "commit:claim attachment:before",
    party: "program",
  },
  { title: "row claimed", until: "commit:claim attachment:after", party: "daemon" },
  { title: "veth into the namespace", until: "netlink:set alias of", party: "daemon" },
  { title: "address and routes", until: "netlink:set up true of link", party: "daemon" },
  { title: "rules", until: "netlink:nftables add elements:after", party: "daemon" },
  { title: "port on the bridge", until: "netlink:set master up true of:after", party: "daemon" },
  { title: "looked at, committed", until: "commit:attached:after", party: "daemon" },
  { title: "answer, plugin ends", party: "program" },
];

/** One ADD of a container, as a runtime sees it: plugin's start to its end. */
export async function add(host: CniHost, watch: Watched): Promise<readonly Part[]> {
  const { marks, result } = await watch.around(() => host.round());
  const { beganMs, ms } = result.add;
  return cut(addStages, marks, [beganMs, beganMs + ms]);
}

const publishStages: readonly Stage[] = [
  { title: "request read", until: "socket:hold a TCP port:before", party: "daemon" },
  { title: "host port held", until: "socket:hold a TCP port:after", party: "daemon" },
  { title: "planned, committed", until: "commit:replan:after", party: "daemon" },
  { title: "plan kept in a file", until: "file:keep plan:after", party: "daemon" },
  {
    title: "port reflects frames",
    until: "netlink:set the bridge port settings of",
    party: "daemon",
  },
  { title: "rules", until: "netlink:nftables add elements:after", party: "daemon" },
  { title: "commit flushed meanwhile", until: "commit:flush:after", party: "daemon" },
  { title: "answer", party: "daemon" },
];

/** A port of a running pod published; unpublishes it. */
export async function publish(podnet: Podnet, watch: Watched): Promise<readonly Part[]> {
  const ports = [{ hostIp: "0.0.0.0", hostPort: 40_001, podPort: 80 }];
  const { marks, window } = await watch.around(() =>
    podnet.pods.publishPorts({ idOrName: "one", ports }),
  );
  await podnet.pods.unpublishPorts({ idOrName: "one", ports });
  return cut(publishStages, marks, window);
}

const execStages: readonly Stage[] = [
  { title: "request read", until: "channel:execCmd:before", party: "daemon" },
  { title: "guest runs it; answer", party: "guest" },
];

/** `true` run in a pod: API call to its exit code. */
export async function exec(podnet: Podnet, watch: Watched): Promise<readonly Part[]> {
  async function* requests() {
    yield { input: { case: "start" as const, value: { idOrName: "one", args: ["true"] } } };
  }
  const { marks, window } = await watch.around(async () => {
    for await (const { output } of podnet.pods.exec(requests()))
      if (output.case === "exit" && output.value.code !== 0) throw new Error("true failed");
  });
  return cut(execStages, marks, window);
}

/** The client of a podnetd that stands in a directory, with a pod named "one". */
export async function withPod(directory: string): Promise<Podnet> {
  const podnet = connectPodnet({ socket: `${directory}/podnet.sock` });
  await podnet.pods.create({ spec: { name: "one" } });
  return podnet;
}
