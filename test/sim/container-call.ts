import { renderExchange } from "../../cni/protocol/exchange.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { answerExchange } from "../../daemon/containers/cni/answer-exchange.ts";
import type { AttachmentName } from "../../daemon/containers/attachment-rows.ts";
import type { LiveNode } from "./daemon-life.ts";

/** One call of the plugin by a container runtime. */
export interface CniCall {
  readonly command: "ADD" | "DEL" | "CHECK" | "GC" | "STATUS";
  readonly name?: AttachmentName;
  readonly netns?: string | undefined;
  readonly configuration: { readonly name: string; readonly [member: string]: unknown };
}

/** The plugin's environment. */
export const envOf = ({ command, name, netns }: CniCall): Record<string, string> => ({
  CNI_COMMAND: command,
  CNI_PATH: "/opt/cni/bin",
  ...(name === undefined ? {} : { CNI_CONTAINERID: name.containerId, CNI_IFNAME: name.ifName }),
  ...(netns === undefined ? {} : { CNI_NETNS: netns }),
});

/**
 * Asks as the plugin does, bytes and all; answers what it prints, and throws what it fails with.
 */
export async function askCni(
  { attachments }: Pick<LiveNode, "attachments">,
  call: CniCall,
  signal = new AbortController().signal,
): Promise<string> {
  const stdin = Buffer.from(JSON.stringify(call.configuration)).toString("base64");
  const body = encodeUtf8(renderExchange(envOf(call), stdin));
  const answer = await answerExchange(body, { attachments, done: () => {} }, signal);
  if (!answer.ok) throw answer.error;
  return answer.stdout;
}
