import { hasGroups } from "./containers/container-group.ts";
import { PodnetError } from "../../core/errors.ts";
import { agentFeatures, extensionVersion } from "../protocol/configure.ts";
import { encodeHelloReply, parseHelloRequest } from "../protocol/extension-messages.ts";
import type { Reply } from "./reply.ts";
import { version } from "./version.ts";

export interface Self {
  /** This start of the agent, or this clone of it. */
  readonly epoch: string;
  /**
   * Whether it is the guest's first process: of what others drew from the kernel before AWAKE
   * nothing could be known.
   */
  readonly isInit: boolean;
}

/** HELLO: agrees on a version of the extension. */
export function hello(payload: Uint8Array, { epoch, isInit }: Self): Reply {
  const { versions, nonce } = parseHelloRequest(payload);
  if (!versions.includes(extensionVersion))
    throw new PodnetError(
      "UNSUPPORTED",
      `The extension's version here is ${extensionVersion}, the host speaks ${versions.join(", ")}`,
      { field: "versions" },
    );
  return {
    payload: encodeHelloReply({
      version: extensionVersion,
      agent: version,
      epoch,
      nonce,
      features: [
        ...(isInit ? [agentFeatures.awake, agentFeatures.containers] : []),
        ...(isInit && hasGroups()
          ? [agentFeatures.containerLimits, agentFeatures.containerProcesses]
          : []),
        agentFeatures.loopback,
        agentFeatures.attributes,
        agentFeatures.parking,
        agentFeatures.files,
        agentFeatures.main,
        agentFeatures.preload,
        agentFeatures.shares,
        agentFeatures.writableShares,
        agentFeatures.steps,
        ...(isInit ? [agentFeatures.twins] : []),
      ],
    }),
  };
}
