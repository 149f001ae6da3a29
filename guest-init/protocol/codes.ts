import { extensionCodes } from "./configure.ts";

/** API version of hyperstart 1.0 and 1.1, the one spoken here; GETVERSION answers it as u32BE. */
export const apiVersion = 4244;

/** Names QEMU gives the two virtio serial ports, as found in /sys/class/virtio-ports/N/name. */
export const portNames = { control: "sh.hyper.channel.0", tty: "sh.hyper.channel.1" } as const;

/** The "container" of EXECCMD that means the agent's own namespaces. */
export const agentContainer = "hyperstart";

/** Command codes of hyperstart's control channel, API 4244. */
export const command = {
  getVersion: 0,
  startPod: 1,
  /** Deprecated: answered with ERROR, as are 3, 5, 7 and 13. */
  getPod: 2,
  stopPod: 3,
  destroyPod: 4,
  restartContainer: 5,
  execCmd: 6,
  cmdFinished: 7,
  ready: 8,
  ack: 9,
  error: 10,
  winSize: 11,
  ping: 12,
  podFinished: 13,
  next: 14,
  writeFile: 15,
  readFile: 16,
  newContainer: 17,
  killContainer: 18,
  onlineCpuMem: 19,
  setupInterface: 20,
  setupRoute: 21,
  removeContainer: 22,
  processAsyncEvent: 23,
  signalProcess: 24,
  deleteInterface: 25,
  ...extensionCodes,
} as const;

type CommandName = keyof typeof command;

const names = new Map<number, CommandName>(
  Object.entries(command).map(([name, code]) => [code, name as CommandName]),
);

/** The command's name, for messages; `code 99` without a name. */
export const commandName = (code: number): string => names.get(code) ?? `code ${code}`;
