import { PodnetError } from "../../core/errors.ts";
import { extensionVersion } from "../protocol/configure.ts";
import { encodeHelloReply, parseHelloRequest } from "../protocol/extension-messages.ts";
import type { Reply } from "./reply.ts";
import { version } from "./version.ts";

/** HELLO: agrees on a version of the extension. `epoch` is this start of the agent. */
export function hello(payload: Uint8Array, epoch: string): Reply {
  const { versions, nonce } = parseHelloRequest(payload);
  if (!versions.includes(extensionVersion))
    throw new PodnetError(
      "UNSUPPORTED",
      `The extension's version here is ${extensionVersion}, the host speaks ${versions.join(", ")}`,
      { field: "versions" },
    );
  return {
    payload: encodeHelloReply({ version: extensionVersion, agent: version, epoch, nonce }),
  };
}
