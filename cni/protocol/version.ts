import { printable } from "../../core/names.ts";
import { cniError, refusal } from "./refusal.ts";

/** Every version of the protocol there is, oldest first. */
export const cniVersions = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;

export type CniVersion = (typeof cniVersions)[number];

const newestVersion: CniVersion = "1.1.0";

export const isCniVersion = (text: unknown): text is CniVersion =>
  (cniVersions as readonly unknown[]).includes(text);

/** Whether `version` is `since` or newer. */
export const atLeast = (version: CniVersion, since: CniVersion): boolean =>
  cniVersions.indexOf(version) >= cniVersions.indexOf(since);

/**
 * The version a configuration names; the first by default, as in libcni. Throws with CNI's error 1.
 */
export function parseVersion(text: string | undefined): CniVersion {
  const version = text ?? "0.1.0";
  if (isCniVersion(version)) return version;
  throw refusal("incompatible CNI versions", {
    cni: cniError.version,
    code: "UNSUPPORTED",
    field: "cniVersion",
    hint: `The configuration says "${printable(version)}"; podnet speaks ${cniVersions.join(", ")}`,
  });
}

/** The answer to `VERSION`: the newest version and all of them. */
export const versionAnswer = (): string =>
  JSON.stringify({ cniVersion: newestVersion, supportedVersions: cniVersions });
