import { open } from "node:fs/promises";
import { resolve } from "node:path";
import type { Podnet } from "../../../api/client.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import type { Context } from "../../context.ts";
import { usage } from "../../usage.ts";
import { importImage, pullImage } from "../image/fetch.ts";

/** What a pod's root is made of. */
export type ImageToRun =
  /** A name or digest in the store. */
  | { readonly kind: "stored"; readonly reference: string }
  /** A squashfs on podnetd's host. */
  | { readonly kind: "squashfs"; readonly path: string };

interface AskedImage {
  readonly image: string;
  readonly pull: Pull;
  /** Of the pod that is to be made; empty: podnetd chooses one. */
  readonly podName: string;
  /** For the registry. */
  readonly credential: { readonly username: string; readonly password: string } | undefined;
}

/** When the registry is asked. */
export type Pull = "missing" | "always" | "never";

/** The first bytes of a squashfs: kernel.org, fs/squashfs/squashfs_fs.h. */
const squashfsMagic = "hsqs";

/**
 * Makes sure that podnetd has what IMAGE means: a file is an archive that is sent, or a squashfs
 * that podnetd reads itself; a name is pulled as `pull` says. Throws as ImageService's calls.
 */
export async function imageToRun(
  context: Context,
  podnet: Podnet,
  { image, pull, credential, podName }: AskedImage,
  signal: AbortSignal,
): Promise<ImageToRun> {
  const begin = mayBeFile(image) ? await firstBytes(image) : undefined;
  if (credential !== undefined && (pull === "never" || begin !== undefined || isPath(image)))
    throw usage("No registry is asked for the image", "Leave out --username and --password-stdin");
  // (A path that is not here may be on podnetd's own host.)
  if (begin === squashfsMagic || (begin === undefined && isPath(image)))
    return { kind: "squashfs", path: resolve(image) };
  if (begin !== undefined) {
    await refuseTaken(podnet, podName, signal);
    const start = { name: "", choose: "", path: "" };
    const { digest } = await importImage(context, podnet, start, image, signal);
    return { kind: "stored", reference: digest };
  }
  const isThere =
    pull !== "always" && (pull === "never" || (await hasImage(podnet, image, signal)));
  const request = {
    reference: image,
    policy: pull,
    ...(credential === undefined ? {} : { credential }),
  };
  if (!isThere) {
    await refuseTaken(podnet, podName, signal);
    await pullImage(context, podnet, request, signal);
  }
  return { kind: "stored", reference: image };
}

/** Before an image is fetched, which may take minutes. Throws `NAME_IN_USE`. */
async function refuseTaken(podnet: Podnet, name: string, signal: AbortSignal): Promise<void> {
  if (name === "") return;
  const { pod } = await podnet.pods.get({ idOrName: name }, { signal }).catch((thrown: unknown) => {
    // (The create says what is wrong with a name.)
    if (isPodnetError(thrown, "POD_NOT_FOUND", "INVALID_ARGUMENT")) return { pod: undefined };
    throw thrown;
  });
  if (pod?.name !== name) return;
  throw new PodnetError("NAME_IN_USE", `Pod name "${name}" is taken by pod ${pod.id}`, {
    field: "name",
    hint: `Choose another name, or delete that pod: podnet delete ${name}`,
  });
}

/** A name of an image begins with neither. */
const isPath = (image: string): boolean => /^\.{0,2}\//.test(image);

const mayBeFile = (image: string): boolean =>
  isPath(image) || /\.(?:tar(?:\.(?:gz|zst))?|tgz|squashfs)$/.test(image);

/** Undefined where there is no such file. */
async function firstBytes(path: string): Promise<string | undefined> {
  try {
    await using file = await open(path);
    const { buffer } = await file.read(Buffer.alloc(squashfsMagic.length));
    return buffer.toString("latin1");
  } catch {
    return undefined;
  }
}

async function hasImage(podnet: Podnet, reference: string, signal: AbortSignal): Promise<boolean> {
  try {
    await podnet.images.get({ reference }, { signal });
    return true;
  } catch (thrown) {
    if (isPodnetError(thrown, "IMAGE_NOT_FOUND")) return false;
    throw thrown;
  }
}
