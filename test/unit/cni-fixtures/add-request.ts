import { noCapabilities } from "../../../cni/protocol/capabilities.ts";
import type { CniConfig } from "../../../cni/protocol/config.ts";
import type { IfName } from "../../../core/names.ts";
import type { AddRequest } from "../../../daemon/containers/cni/wishes.ts";

type Asked = Omit<Partial<CniConfig>, "capabilities"> & {
  readonly capabilities?: Partial<CniConfig["capabilities"]>;
};

/** An ADD of a container that asks for nothing but this. */
export const addRequest = (
  { capabilities, ...config }: Asked = {},
  { containerId = "one", args = {} }: { containerId?: string; args?: Record<string, string> } = {},
): AddRequest => ({
  command: "ADD",
  containerId,
  ifName: "eth0" as IfName,
  netns: `/run/netns/${containerId}`,
  path: [],
  args: new Map(Object.entries(args)),
  config: {
    version: "1.1.0",
    name: "podnet",
    type: "podnet-cni",
    args: { ips: [] },
    serviceCidrs: [],
    portsHeldByRuntime: false,
    ...config,
    capabilities: { ...noCapabilities, ...capabilities },
  },
});
