import { PodnetError } from "../core/errors.ts";
import type { Input } from "./io.ts";
import { usage } from "./usage.ts";

/** Bytes that a password may have: podnetd takes no more either. */
const most = 16_384;

export interface CredentialFlags {
  readonly username?: string;
  readonly passwordStdin?: boolean;
}

/**
 * The credential of a call: the user of `--username`, and the password from standard input, where
 * neither the list of processes nor the shell's history shows it. Throws `INVALID_ARGUMENT`.
 */
export async function credentialOf(
  { username, passwordStdin = false }: CredentialFlags,
  stdin: Input,
): Promise<{ username: string; password: string } | undefined> {
  if (username === undefined && !passwordStdin) return undefined;
  if (username === undefined || !passwordStdin)
    throw usage(
      "A credential is a user and a password",
      "Give --username NAME and --password-stdin",
    );
  if (stdin.isTTY === true)
    throw usage(
      "--password-stdin reads no terminal: it would show the password",
      "Give it from a file: --password-stdin IMAGE < FILE",
    );
  return { username, password: await passwordFrom(stdin) };
}

async function passwordFrom(stdin: Input): Promise<string> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of stdin) {
    const bytes = Buffer.from(part as Uint8Array);
    parts.push(bytes);
    length += bytes.length;
    if (length > most + 2) throw usage("The password is too long", `Use at most ${most} bytes`);
  }
  // A file has a line's end that is no part of it.
  const password = Buffer.concat(parts)
    .toString("utf8")
    .replace(/\r?\n$/, "");
  if (password !== "") return password;
  throw new PodnetError("INVALID_ARGUMENT", "Standard input has no password", {
    field: "credential.password",
    hint: "Write it to standard input: --password-stdin < FILE",
  });
}
