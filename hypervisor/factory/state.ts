import { abortError } from "../../core/aborting.ts";
import { PodnetError } from "../../core/errors.ts";
import type { QmpClient } from "../qmp/client.ts";
import { eventData, type MigrationCapability } from "../qmp/commands.ts";

/** Name under which the state's descriptor is handed over, `getfd fdname=`. */
const fdName = "state";
const uri = `fd:${fdName}`;

/**
 * The memory is in a file that both ends have: the state is the devices' alone (QEMU 7.2,
 * experimental by its name).
 */
const capabilities: readonly MigrationCapability[] = [
  { capability: "x-ignore-shared", state: true },
  { capability: "events", state: true },
];

/** Longest a state of some hundred kilobytes may take, milliseconds: the host may be loaded. */
const stateMs = 30_000;

/**
 * Writes the state of a stopped machine to a file, alongside the memory that is in a file already.
 */
export async function saveState(qmp: QmpClient, fd: number, signal: AbortSignal): Promise<void> {
  await move(qmp, fd, signal, "save", () => qmp.execute("migrate", { uri }, { signal }));
}

/**
 * Gives a machine that waits for it a state; `fd` is read from its offset on. The guest stays
 * stopped.
 */
export async function restoreState(qmp: QmpClient, fd: number, signal: AbortSignal): Promise<void> {
  await move(qmp, fd, signal, "restore", () =>
    qmp.execute("migrate-incoming", { uri }, { signal }),
  );
}

/**
 * QEMU announces the NICs of a machine that has moved, five times within a second. A clone has not
 * moved, and its agent announces it.
 */
const announcement = { "announce-rounds": 0 };

/** The commands that `restoreState` sends, for people. Pure. */
export const describeRestore = (): readonly string[] =>
  [
    { execute: "migrate-set-parameters", arguments: announcement },
    { execute: "migrate-set-capabilities", arguments: { capabilities } },
    { execute: "getfd", arguments: { fdname: fdName } },
    { execute: "migrate-incoming", arguments: { uri } },
    { execute: "cont" },
  ].map((command) => JSON.stringify(command));

async function move(
  qmp: QmpClient,
  fd: number,
  signal: AbortSignal,
  what: "save" | "restore",
  begin: () => Promise<unknown>,
): Promise<void> {
  const { promise: over, resolve, reject } = Promise.withResolvers<void>();
  // Awaited below; a rejection before that would be unhandled.
  over.catch(() => {});
  const limit = AbortSignal.any([signal, AbortSignal.timeout(stateMs)]);
  const onAbort = (): void => reject(abortError(limit, `Waiting for QEMU to ${what} the state`));
  limit.addEventListener("abort", onAbort, { once: true });
  const unlisten = [
    () => limit.removeEventListener("abort", onAbort),
    qmp.onClose(reject),
    qmp.onEvent((event) => {
      const status = eventData(event, "MIGRATION")?.status;
      if (status === "completed") resolve();
      if (status === "failed" || status === "cancelled") reject(failed(what));
    }),
  ];
  try {
    // QEMU takes commands in their order.
    await Promise.all([
      qmp.execute("migrate-set-parameters", announcement, { signal }),
      qmp.execute("migrate-set-capabilities", { capabilities }, { signal }),
      qmp.passFd(fdName, fd, { signal }),
    ]);
    await begin();
    await over;
  } finally {
    for (const end of unlisten) end();
  }
}

const failed = (what: "save" | "restore"): PodnetError =>
  new PodnetError("QMP_FAILED", `QEMU could not ${what} the machine's state`, {
    hint: "See QEMU's own messages in podnetd's log; create the pod with --factory cold",
    details: { command: what === "save" ? "migrate" : "migrate-incoming" },
  });
