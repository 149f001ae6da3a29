/** Architectures that guests can have, by the kernel's own names. */
export const architectures = ["x86_64", "arm64"] as const;
export type Architecture = (typeof architectures)[number];

/** The architecture of podnetd's own host. */
export const hostArchitecture: Architecture = process.arch === "arm64" ? "arm64" : "x86_64";

/** A plan of an earlier podnetd names no architecture: it supported one. */
export const architectureOf = ({
  arch = "x86_64",
}: {
  readonly arch?: Architecture;
}): Architecture => arch;
