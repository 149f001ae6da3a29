import { decodeConfig } from "../protocol/config-read.ts";
import { defaultSocket } from "../protocol/exchange.ts";
import { countAt, textAt } from "../protocol/json.ts";
import { defaultPendingDirectory } from "../protocol/pending.ts";

/** The plugin's own part of the configuration. */
export interface Settings {
  readonly socket: string;
  /** Where DELs are written down while podnetd is away. */
  readonly pendingDirectory: string;
  /** How long podnetd may take. */
  readonly timeoutMs: number;
}

const defaults: Settings = {
  socket: defaultSocket,
  pendingDirectory: defaultPendingDirectory,
  timeoutMs: 60_000,
};

/** Reads `socket`, `pendingDirectory` and `timeoutSeconds`. Throws with CNI's error 6. */
export function parseSettings(stdin: Uint8Array): Settings {
  const object = decodeConfig(stdin);
  const seconds = countAt(object, "timeoutSeconds", "timeoutSeconds", 1, 3600);
  return {
    socket: textAt(object, "socket", "socket") ?? defaults.socket,
    pendingDirectory:
      textAt(object, "pendingDirectory", "pendingDirectory") ?? defaults.pendingDirectory,
    timeoutMs: seconds === undefined ? defaults.timeoutMs : seconds * 1000,
  };
}
