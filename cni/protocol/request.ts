import type { IfName } from "../../core/names.ts";
import type { CniConfig } from "./config.ts";

export const cniCommands = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"] as const;
export type CniCommand = (typeof cniCommands)[number];

interface OfNetwork {
  /** Directories of plugins, `CNI_PATH`. */
  readonly path: readonly string[];
  readonly args: ReadonlyMap<string, string>;
  readonly config: CniConfig;
}

interface OfAttachment extends OfNetwork {
  readonly containerId: string;
  readonly ifName: IfName;
}

/** One call of a plugin. */
export type CniRequest =
  | (OfAttachment & { readonly command: "ADD" | "CHECK"; readonly netns: string })
  /** `netns` is absent when the runtime has lost it or takes it away itself. */
  | (OfAttachment & { readonly command: "DEL"; readonly netns?: string })
  | (OfNetwork & { readonly command: "GC" | "STATUS" })
  | { readonly command: "VERSION" };
