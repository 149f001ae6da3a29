import { validateCredential } from "../../api/validate/credential.ts";
import { PodnetError } from "../../core/errors.ts";
import { parseReference, withRegistry } from "../../images/reference.ts";
import { type Credential, credentialFrom, plainKey } from "../../images/registry/auth-file.ts";

/** What docker's and Kubernetes' clients send with a pull; empty texts are absent. */
export interface SentAuth {
  /** `USER:PASSWORD` in base64. */
  readonly auth: string;
  readonly username: string;
  readonly password: string;
  /** The registry that it is for. */
  readonly serverAddress: string;
  readonly identityToken: string;
  readonly registryToken: string;
}

/**
 * The credential for a pull of `reference`, whose registry is `usual` if it names none; undefined
 * when none was sent. One for another server is left out, as in containerd. A token counts before a
 * user with a password. Throws `INVALID_ARGUMENT`.
 */
export function credentialOf(
  sent: SentAuth | undefined,
  reference: string,
  usual: string,
): Credential | undefined {
  if (sent === undefined) return undefined;
  const { registry } = withRegistry(parseReference(reference), usual);
  if (sent.serverAddress !== "" && plainKey(sent.serverAddress) !== registry) return undefined;
  const { registryToken, identityToken } = sent;
  if (registryToken !== "") return { registryToken: asToken(registryToken, "registry_token") };
  if (identityToken !== "") return { identityToken: asToken(identityToken, "identity_token") };
  const [auth, username, password] = [sent.auth, sent.username, sent.password].map((text) =>
    text === "" ? undefined : text,
  );
  const found = credentialFrom({ auth, username, password });
  if (found === undefined) {
    if (auth === undefined && username === undefined && password === undefined) return undefined;
    throw new PodnetError("INVALID_ARGUMENT", "The credential has no user or no password", {
      field: "auth",
      hint: "Give username and password, or auth: USER:PASSWORD in base64",
    });
  }
  return validateCredential({ username: found.user, password: found.password });
}

/** A text that can stand in a header. It is never quoted. */
function asToken(text: string, field: string): string {
  if (/^[\x21-\x7e]{1,16384}$/.test(text)) return text;
  throw new PodnetError("INVALID_ARGUMENT", "The token is none that a registry gives", {
    field: `auth.${field}`,
    hint: "Send it as it came: at most 16384 printable characters without blanks",
  });
}
