import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { unreadable } from "../unreadable.ts";
import { type Digest, digestOf, parseDigest } from "./digest.ts";
import { Json, smallFile } from "./json.ts";
import type { StoredFiles } from "./stored-files.ts";

/** How an image's main process is started, and for which machine it is. */
export interface ImageConfig {
  /** As Go names it: `amd64`, `arm64`. */
  readonly architecture: string;
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
  readonly environment: readonly string[];
  readonly directory: string;
  readonly user: string;
  readonly stopSignal: string;
  /** Such as `80/tcp`. */
  readonly exposedPorts: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

/** An image as it is stored: its configuration, and its layers from the lowest up. */
export interface StoredImage {
  /** Of the manifest in an OCI layout, of the configuration in an archive of docker save. */
  readonly digest: Digest;
  readonly names: readonly string[];
  readonly config: ImageConfig;
  readonly layers: readonly StoredLayer[];
}

export interface StoredLayer {
  readonly file: string;
  /** Of the stored bytes; undefined in an archive of docker save. */
  readonly digest: Digest | undefined;
  /** Of the uncompressed bytes. */
  readonly diffId: Digest;
  /** Stored bytes as the manifest says; undefined where it has none. */
  readonly bytes: number | undefined;
}

/** Which of several images is meant. */
export interface Choice {
  readonly name: string | undefined;
  readonly architecture: string;
}

const mostLayers = 500;

/**
 * Reads an OCI layout (`index.json`) or what docker save writes (`manifest.json`), and chooses one
 * image. Throws `IMAGE_UNREADABLE`; `INVALID_ARGUMENT` when the choice leaves none or several;
 * `UNSUPPORTED` for another architecture or operating system.
 */
export async function readImage(stored: StoredFiles, choice: Choice): Promise<StoredImage> {
  const docker = await smallFile(stored, "manifest.json");
  const index = docker === undefined ? await smallFile(stored, "index.json") : undefined;
  const image =
    docker !== undefined
      ? await dockerImage(stored, Json.of(docker, "manifest.json"), choice)
      : index !== undefined
        ? await ociImage(stored, Json.of(index, "index.json"), choice)
        : undefined;
  if (image === undefined)
    throw unreadable(
      "There is neither an index.json nor a manifest.json",
      "Name an OCI layout, or an archive of podman save, docker save or skopeo",
    );
  if (image.config.architecture !== choice.architecture)
    throw new PodnetError(
      "UNSUPPORTED",
      `The image is for ${printable(image.config.architecture)}, not for ${choice.architecture}`,
      { hint: "Save the image of this host's architecture", field: "architecture" },
    );
  return image;
}

/** One image, or a refusal that names all. */
function only<T>(found: readonly T[], choice: Choice, names: readonly string[]): T {
  const [image, ...others] = found;
  if (image !== undefined && others.length === 0) return image;
  const all =
    names.length === 0 ? "none has a name" : names.map((name) => printable(name)).join(", ");
  const which = choice.name === undefined ? "" : ` named "${printable(choice.name)}"`;
  const count = image === undefined ? "is no image" : `are ${found.length} images`;
  throw new PodnetError("INVALID_ARGUMENT", `There ${count}${which} for ${choice.architecture}`, {
    field: "name",
    hint: `Name one of its images: ${all}`,
  });
}

const isNamed = (names: readonly string[], { name }: Choice): boolean =>
  name === undefined || names.includes(name);

async function dockerImage(
  stored: StoredFiles,
  manifest: Json,
  choice: Choice,
): Promise<StoredImage> {
  const images = manifest.items.map((each) => ({
    config: each.need("Config").text,
    names: each.get("RepoTags")?.texts ?? [],
    layers: each.need("Layers").texts,
  }));
  const found = images.filter(({ names }) => isNamed(names, choice));
  const image = only(
    found,
    choice,
    images.flatMap(({ names }) => names),
  );
  const bytes = await needed(stored, image.config);
  const { config, diffIds } = configOf(Json.of(bytes, "The image's configuration"));
  return {
    digest: digestOf(bytes),
    names: image.names,
    config,
    layers: layersOf(
      image.layers.map((file) => ({ file, digest: undefined, bytes: undefined })),
      diffIds,
    ),
  };
}

/** An entry of an index. */
interface Descriptor {
  readonly digest: Digest;
  readonly names: readonly string[];
  readonly architecture: string | undefined;
}

const nameKeys = ["io.containerd.image.name", "org.opencontainers.image.ref.name"] as const;

async function ociImage(stored: StoredFiles, index: Json, choice: Choice): Promise<StoredImage> {
  const all = await manifestsOf(stored, index, 0);
  const named = all.filter(({ names }) => isNamed(names, choice));
  const fitting = named.filter(
    ({ architecture }) => architecture === undefined || architecture === choice.architecture,
  );
  // (Where none fits, the one there is says by its configuration what it is for.)
  const found = fitting.length === 0 && named.length === 1 ? named : fitting;
  const chosen = only(found, choice, [...new Set(all.flatMap(({ names }) => names))]);
  const manifest = Json.of(await blob(stored, chosen.digest), "The image's manifest");
  const configDigest = parseDigest(manifest.need("config").need("digest").text);
  const bytes = await blob(stored, configDigest);
  const { config, diffIds } = configOf(Json.of(bytes, "The image's configuration"));
  const layers = manifest.need("layers").items.map((each) => {
    const digest = parseDigest(each.need("digest").text);
    return { file: blobFile(digest), digest, bytes: each.need("size").count };
  });
  return {
    digest: chosen.digest,
    names: chosen.names,
    config,
    layers: layersOf(layers, diffIds),
  };
}

/** The manifests of an index, and of indexes in it. */
async function manifestsOf(stored: StoredFiles, index: Json, depth: number): Promise<Descriptor[]> {
  if (depth > 3) throw unreadable("Indexes of the image lie too deep in one another");
  const items = index.need("manifests").items;
  if (items.length > 1000) throw unreadable("The index has too many images");
  const found: Descriptor[] = [];
  for (const item of items) {
    const digest = parseDigest(item.need("digest").text);
    const annotations = item.get("annotations");
    const names = nameKeys.flatMap((key) => annotations?.get(key)?.text ?? []);
    const platform = item.get("platform");
    const architecture = platform?.get("architecture")?.text;
    const os = platform?.get("os")?.text;
    if (isIndex(item.get("mediaType")?.text)) {
      const inner = Json.of(await blob(stored, digest), "An index of the image");
      for (const each of await manifestsOf(stored, inner, depth + 1))
        found.push({ ...each, names: [...names, ...each.names] });
    } else if (os === undefined || os === "linux") {
      // (Attestations have the platform unknown.)
      found.push({ digest, names, architecture });
    }
    if (found.length > 1000) throw unreadable("The index has too many images");
  }
  return found;
}

const isIndex = (mediaType = ""): boolean =>
  mediaType === "application/vnd.oci.image.index.v1+json" ||
  mediaType === "application/vnd.docker.distribution.manifest.list.v2+json";

function configOf(json: Json): { config: ImageConfig; diffIds: Digest[] } {
  const os = json.get("os")?.text ?? "linux";
  if (os !== "linux")
    throw new PodnetError("UNSUPPORTED", `The image is for ${printable(os)}, not for linux`, {
      hint: "Save the image for linux",
    });
  const run = json.get("config");
  return {
    config: {
      architecture: json.need("architecture").text,
      entrypoint: run?.get("Entrypoint")?.texts ?? [],
      command: run?.get("Cmd")?.texts ?? [],
      environment: run?.get("Env")?.texts ?? [],
      directory: run?.get("WorkingDir")?.text ?? "",
      user: run?.get("User")?.text ?? "",
      stopSignal: run?.get("StopSignal")?.text ?? "",
      exposedPorts: run?.get("ExposedPorts")?.entries.map(([port]) => port) ?? [],
      labels: Object.fromEntries(
        run?.get("Labels")?.entries.map(([name, label]) => [name, label.text]) ?? [],
      ),
    },
    diffIds: json.need("rootfs").need("diff_ids").texts.map(parseDigest),
  };
}

function layersOf(
  files: readonly Omit<StoredLayer, "diffId">[],
  diffIds: readonly Digest[],
): StoredLayer[] {
  if (files.length > mostLayers) throw unreadable(`The image has more than ${mostLayers} layers`);
  if (files.length !== diffIds.length)
    throw unreadable(
      `The image has ${files.length} layers, and ${diffIds.length} in its configuration`,
    );
  return files.map((file, i) => ({ ...file, diffId: diffIds[i] as Digest }));
}

const blobFile = (digest: Digest): string => `blobs/${digest.replace(":", "/")}`;

/** A small blob of an OCI layout, compared with its digest. */
async function blob(stored: StoredFiles, digest: Digest): Promise<Uint8Array> {
  const bytes = await needed(stored, blobFile(digest));
  if (digestOf(bytes, digest) === digest) return bytes;
  throw unreadable(`The image's file ${blobFile(digest)} does not have this digest`);
}

async function needed(stored: StoredFiles, name: string): Promise<Uint8Array> {
  const bytes = await smallFile(stored, name);
  if (bytes !== undefined) return bytes;
  throw unreadable(`The image's file "${printable(name)}" is missing`);
}
