import { join } from "node:path";
import type * as z from "zod";
import { dockerHub, parseReference } from "../../images/reference.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

/** The store of images. */
export interface ImagesConfig {
  /** Where their files are. */
  readonly directory: string;
  /** Where operators may pull from. The first is that of names without one. */
  readonly registries: readonly [string, ...string[]];
  /** Registries without TLS. */
  readonly insecure: readonly string[];
  /** A file of certificates. */
  readonly ca: string | undefined;
  readonly authFile: string | undefined;
  /** Bytes of all images' files. */
  readonly mostBytes: number;
  /** Bytes of the files in one image. */
  readonly mostImageBytes: number;
  /** Bytes of layers that are kept. */
  readonly mostLayerBytes: number;
  readonly evict: boolean;
  readonly jobMs: number;
}

/** The settings as the schema types them; files may be left out. */
export type ImagesValues = Omit<z.infer<typeof configSchema>["images"], "ca" | "auth_file"> &
  Partial<z.infer<typeof configSchema>["images"]>;

export const imagesConfig = (
  values: ImagesValues,
  stateDir: string,
  read: Reader,
): ImagesConfig => ({
  directory: join(stateDir, "image-store"),
  registries: read("images.registries", values.registries, (list) => {
    const [first = dockerHub, ...others] = list.map(parseRegistry);
    return [first, ...others] as const;
  }),
  insecure: read("images.insecure", values.insecure, (list) => list.map(parseRegistry)),
  ca: values.ca,
  authFile: values.auth_file,
  mostBytes: values.max_mib * 2 ** 20,
  mostImageBytes: values.image_max_mib * 2 ** 20,
  mostLayerBytes: values.layers_max_mib * 2 ** 20,
  evict: values.evict,
  jobMs: values.job_s * 1000,
});

function parseRegistry(text: string): string {
  if (parseReference(`${text}/image`).registry === text) return text;
  throw new TypeError("write HOST or HOST:PORT, with a dot in HOST, or localhost");
}
