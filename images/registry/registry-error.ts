import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";

const tlsCodes =
  /^(?:ERR_(?:SSL|TLS)|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_MISMATCH|EPROTO)/;

/** A connection that failed. */
export function unreachable(host: string, cause: unknown): PodnetError {
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  const why = code || (cause instanceof Error ? cause.message : String(cause));
  return new PodnetError(
    "REGISTRY_UNREACHABLE",
    `The registry ${printable(host)} cannot be reached: ${printable(why)}`,
    {
      hint: tlsCodes.test(code)
        ? "Set images.ca to the certificate of its authority, or name it in images.insecure if it has no TLS"
        : "See whether the host is right, and can be reached from here; podnet image list has what is here",
      details: { registry: host, reason: why },
      cause,
    },
  );
}

/** An answer that refuses the caller. */
export const denied = (host: string, path: string): PodnetError =>
  new PodnetError("REGISTRY_DENIED", `The registry ${printable(host)} denies ${printable(path)}`, {
    hint: "Put credentials for it into images.auth_file; some registries say so of images that they do not have",
    details: { registry: host },
  });

/** An answer that is none of the protocol's. */
export const badAnswer = (host: string, what: string): PodnetError =>
  new PodnetError("REGISTRY_FAILED", `The registry ${printable(host)} ${what}`, {
    hint: "Try again later, and see the registry's own log",
    details: { registry: host },
  });
