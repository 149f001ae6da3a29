import { constants } from "node:os";
import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import { checkCount, invalid } from "../fields.ts";
import type { BootSpec, ProcessSpec, RestartSpec } from "../pod-spec.ts";

const limits = {
  args: 4096,
  env: 1024,
  /** Of all arguments and variables together: a frame to the agent has 1 MiB. */
  characters: 256 * 1024,
  stopMs: 600_000,
  restarts: 1_000_000,
} as const;

const noNul = (text: string, field: string): void => {
  if (text.includes("\0"))
    throw invalid(field, "The text has a NUL character in it", "Leave it out: C ends a text there");
};

/** Checks what the main process of a pod is. */
export function validateProcess(process: wire.Process): ProcessSpec {
  const { args, entrypoint, env, workdir, user, stopSignal, stopTimeoutMs } = process;
  checkCount(args, limits.args, "process.args");
  checkCount(entrypoint, limits.args, "process.entrypoint");
  checkCount(Object.keys(env), limits.env, "process.env");
  args.forEach((text, i) => noNul(text, `process.args[${i}]`));
  entrypoint.forEach((text, i) => noNul(text, `process.entrypoint[${i}]`));
  for (const [key, value] of Object.entries(env)) {
    const field = `process.env["${printable(key)}"]`;
    if (key === "" || /[=\0]/.test(key))
      throw invalid(field, "The variable's name is not usable", "Use a name without =");
    noNul(value, field);
  }
  const all = [...args, ...entrypoint, ...Object.entries(env).flat()];
  const characters = all.reduce((sum, text) => sum + text.length, 0);
  if (characters > limits.characters)
    throw invalid(
      "process.args",
      `${characters} characters of arguments and variables are too many`,
      `Use at most ${limits.characters}; give the rest in a file`,
    );
  if (workdir !== "" && (!workdir.startsWith("/") || workdir.length > 4095 || /\0/.test(workdir)))
    throw invalid(
      "process.workdir",
      `"${printable(workdir)}" is not an absolute path`,
      "Write the directory's full path in the guest",
    );
  if (user !== "" && !isUser(user))
    throw invalid(
      "process.user",
      `"${printable(user)}" is not a user`,
      "Write user, user:group or numbers",
    );
  if (stopTimeoutMs !== undefined && stopTimeoutMs > limits.stopMs)
    throw invalid(
      "process.stop_timeout_ms",
      `${stopTimeoutMs} ms are too long`,
      `Use at most ${limits.stopMs}`,
    );
  return {
    ...(args.length === 0 ? {} : { args: [...args] }),
    ...(entrypoint.length === 0 ? {} : { entrypoint: [...entrypoint] }),
    env: { ...env },
    ...(workdir === "" ? {} : { workdir }),
    ...(user === "" ? {} : { user }),
    terminal: process.terminal,
    stdin: process.stdin,
    ...(stopSignal === "" ? {} : { stopSignal: signalFromText(stopSignal, "process.stop_signal") }),
    ...(stopTimeoutMs === undefined ? {} : { stopTimeoutMs }),
  };
}

/** Whether a text can be `user` or `user:group`; the guest knows whether there is such a one. */
const isUser = (text: string): boolean =>
  /^[^:\s\p{Cc}]{1,256}(?::[^:\s\p{Cc}]{1,256})?$/u.test(text);

/** A signal by number or name, `SIGTERM`, `TERM` or `15`; also `SIGRTMIN+3`, as systemd has it. */
export function signalFromText(text: string, field: string): number {
  const name = text.toUpperCase().replace(/^(?:SIG)?/, "SIG");
  const realtime = /^SIGRTMIN(?:\+([0-9]{1,2}))?$/.exec(name);
  const named = (constants.signals as Readonly<Record<string, number>>)[name];
  const number = /^[0-9]{1,2}$/.test(text)
    ? Number(text)
    : realtime === null
      ? named
      : 34 + Number(realtime[1] ?? 0);
  if (number !== undefined && number >= 1 && number <= 64) return number;
  throw invalid(
    field,
    `"${printable(text)}" is not a signal`,
    "Use a name such as SIGTERM, or 1 to 64",
  );
}

/** Checks what follows the end of the main process. */
export function validateRestart({ policy, max }: wire.Restart): RestartSpec | undefined {
  if (policy === "no" || policy === "") return undefined;
  if (policy !== "on-failure" && policy !== "always")
    throw invalid(
      "restart.policy",
      `Restart policy "${printable(policy)}" is not known`,
      "Use no, on-failure or always",
    );
  if (max > 0 && policy !== "on-failure")
    throw invalid("restart.max", "Only on-failure has a limit", "Leave it out");
  if (max > limits.restarts)
    throw invalid("restart.max", `${max} restarts are too many`, `Use at most ${limits.restarts}`);
  return { policy, ...(max === 0 ? {} : { max }) };
}

/**
 * Checks the image that a pod is made of, and refuses what cannot go with any. What it is only
 * podnetd knows.
 */
export function validateImage(boot: wire.Boot): Pick<BootSpec, "image"> {
  const { image } = boot;
  if (image === "") return {};
  if (image.length > 512 || !/^[\x21-\x7e]+$/.test(image))
    throw invalid(
      "boot.image",
      `"${printable(image)}" is not a name of an image`,
      "Write a name and a tag, such as app:1, or a digest",
    );
  const what = (["kernel", "initrd"] as const).find((key) => boot[key] !== "");
  if (what !== undefined)
    throw invalid(
      `boot.${what}`,
      "An image starts on podnet's kernel, or, if it is a disk, by itself",
      `Leave ${what} or image out`,
    );
  return { image };
}
