import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { type Digest, isDigest } from "./archive/digest.ts";

/** What people call an image: `[REGISTRY/]PATH[:TAG][@DIGEST]`. */
export interface ImageReference {
  /** Host and port; undefined where the text names none. */
  readonly registry: string | undefined;
  /** The repository, without the registry. */
  readonly repository: string;
  /** `latest` where the text has neither a tag nor a digest. */
  readonly tag: string | undefined;
  readonly digest: Digest | undefined;
}

// The grammar of the distribution project's `reference` package.
const host = /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?$/;
const repository =
  /^[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*$/;
const tagPattern = /^\w[\w.-]{0,127}$/;
const longest = 255;

/** Throws `INVALID_ARGUMENT`. */
export function parseReference(text: string, field = "reference"): ImageReference {
  const invalid = (why: string): PodnetError =>
    new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is not an image's name: ${why}`, {
      field,
      hint: "Write NAME, NAME:TAG, REGISTRY/NAME:TAG or NAME@sha256:DIGEST, in lower case",
    });
  if (text.length > 2 * longest) throw invalid("it is too long");
  const at = text.indexOf("@");
  const digest = at < 0 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !isDigest(digest)) throw invalid("its digest is none that is known");
  const named = at < 0 ? text : text.slice(0, at);
  const colon = named.lastIndexOf(":");
  const hasTag = colon > named.lastIndexOf("/");
  const tag = hasTag ? named.slice(colon + 1) : undefined;
  if (tag !== undefined && !tagPattern.test(tag)) throw invalid("its tag is not usable");
  const path = hasTag ? named.slice(0, colon) : named;
  const slash = path.indexOf("/");
  const first = slash < 0 ? "" : path.slice(0, slash);
  const isRegistry = /[.:A-Z[]/.test(first) || first === "localhost";
  // (What ends in a number is read as an IPv4 address, which it may not be.)
  if (isRegistry && !(host.test(first) && URL.canParse(`https://${first}/`)))
    throw invalid("its registry is not a host");
  const rest = isRegistry ? path.slice(slash + 1) : path;
  if (!repository.test(rest) || path.length > longest) throw invalid("its path is not usable");
  return {
    registry: isRegistry ? first : undefined,
    repository: rest,
    tag: tag ?? (digest === undefined ? "latest" : undefined),
    digest,
  };
}

/** Registry and repository, without tag and digest. */
export const repositoryText = ({ registry, repository: path }: ImageReference): string =>
  registry === undefined ? path : `${registry}/${path}`;

/** With the tag, or with the digest where there is no tag. */
export function referenceText(reference: ImageReference): string {
  const { tag, digest } = reference;
  const path = repositoryText(reference);
  return tag === undefined ? `${path}@${digest}` : `${path}:${tag}`;
}

/** The registry of public images that names without a registry mean nearly everywhere. */
export const dockerHub = "docker.io";

/** A reference with its registry, `docker.io` having its own folder for names of one word. */
export function withRegistry(reference: ImageReference, usual: string): ImageReference {
  const registry = reference.registry ?? usual;
  const isShort = registry === dockerHub && !reference.repository.includes("/");
  return {
    ...reference,
    registry,
    repository: isShort ? `library/${reference.repository}` : reference.repository,
  };
}
