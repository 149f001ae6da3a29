import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";

/** Layers and images as other programs write them: GNU tar makes the archives. */

export const sha256 = (bytes: Uint8Array): string =>
  `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** The archive of a directory, by GNU tar. */
export const tarOf = (directory: string, ...options: readonly string[]): Buffer =>
  execFileSync(
    "tar",
    [
      "--numeric-owner",
      "--format=pax",
      "--xattrs",
      "--xattrs-include=*",
      ...options,
      "-C",
      directory,
      "-c",
      ".",
    ],
    { maxBuffer: 2 ** 30 },
  );

export type Compression = "gzip" | "zstd" | "none";

const compress = {
  gzip: (bytes: Uint8Array) => gzipSync(bytes, { level: 1 }),
  zstd: (bytes: Uint8Array) => zstdCompressSync(bytes),
  none: (bytes: Uint8Array) => Buffer.from(bytes),
};

export interface ImageSource {
  readonly layers: readonly Uint8Array[];
  readonly compression?: Compression;
  readonly name?: string;
  readonly architecture?: string;
  readonly config?: object;
}

/** Writes an OCI layout. */
export function writeLayout(directory: string, ...images: readonly ImageSource[]): void {
  mkdirSync(path.join(directory, "blobs/sha256"), { recursive: true });
  const add = (bytes: Uint8Array): { digest: string; size: number } => {
    const digest = sha256(bytes);
    writeFileSync(path.join(directory, "blobs", digest.replace(":", "/")), bytes);
    return { digest, size: bytes.length };
  };
  const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
  const manifests = images.map((image) => {
    const { layers, compression = "gzip", name, architecture = "amd64", config = {} } = image;
    const stored = layers.map((bytes) => ({
      mediaType: "application/vnd.oci.image.layer.v1.tar+gzip",
      ...add(compress[compression](bytes)),
    }));
    const settings = add(
      json({
        architecture,
        os: "linux",
        config,
        rootfs: { type: "layers", diff_ids: layers.map(sha256) },
      }),
    );
    const manifest = add(
      json({
        schemaVersion: 2,
        config: { mediaType: "application/vnd.oci.image.config.v1+json", ...settings },
        layers: stored,
      }),
    );
    return {
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      ...manifest,
      ...(name === undefined ? {} : { annotations: { "org.opencontainers.image.ref.name": name } }),
    };
  });
  writeFileSync(path.join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  writeFileSync(path.join(directory, "index.json"), json({ schemaVersion: 2, manifests }));
}

/** Writes what docker save writes: a tar archive with a manifest.json. */
export function writeDockerArchive(
  file: string,
  { layers, name, architecture = "amd64", config = {} }: ImageSource,
): void {
  const directory = `${file}.parts`;
  mkdirSync(directory, { recursive: true });
  const names = layers.map((bytes, i) => {
    mkdirSync(path.join(directory, `layer${i}`));
    writeFileSync(path.join(directory, `layer${i}/layer.tar`), bytes);
    return `layer${i}/layer.tar`;
  });
  const settings = JSON.stringify({
    architecture,
    os: "linux",
    config,
    rootfs: { type: "layers", diff_ids: layers.map(sha256) },
  });
  writeFileSync(path.join(directory, "config.json"), settings);
  writeFileSync(
    path.join(directory, "manifest.json"),
    JSON.stringify([
      { Config: "config.json", RepoTags: name === undefined ? null : [name], Layers: names },
    ]),
  );
  execFileSync("tar", ["-C", directory, "-cf", file, "."]);
}

/** Unpacks a squashfs. */
export const unpack = (squashfs: string, directory: string): void => {
  execFileSync("unsquashfs", ["-quiet", "-no-progress", "-d", directory, squashfs]);
};

/** Reads and writes extended attributes with Python, for Node has none. */
const python = (script: string, ...args: readonly string[]): string =>
  execFileSync("python3", ["-c", `import os, sys\n${script}`, ...args], { encoding: "utf8" });

export const setXattr = (file: string, name: string, hex: string): void => {
  python("os.setxattr(sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3]))", file, name, hex);
};

export const xattrOf = (file: string, name: string): string =>
  python("print(os.getxattr(sys.argv[1], sys.argv[2]).hex())", file, name).trim();
