import { printable } from "../../core/names.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { invalid } from "../fields.ts";
import type { RegistryCredential } from "../gen/podnet/v1/image_service_pb.ts";

const limits = { user: 256, passwordBytes: 16_384 } as const;

/** How a caller shows a registry who it is. Errors never quote the password. */
export interface CallCredential {
  readonly user: string;
  readonly password: string;
}

/** Checks the credential of a call. */
export function validateCredential({
  username,
  password,
}: Pick<RegistryCredential, "username" | "password">): CallCredential {
  if (username === "" || username.length > limits.user || /[:\p{Cc}]/u.test(username))
    throw invalid(
      "credential.username",
      `"${printable(username.slice(0, limits.user))}" is not usable as a user of a registry`,
      `Use 1 to ${limits.user} characters, without a colon`,
    );
  const bytes = encodeUtf8(password).length;
  if (bytes === 0 || bytes > limits.passwordBytes)
    throw invalid(
      "credential.password",
      bytes === 0 ? "The password is empty" : `A password of ${bytes} bytes is too long`,
      `Use 1 to ${limits.passwordBytes} bytes`,
    );
  return { user: username, password };
}
