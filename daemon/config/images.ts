import { join } from "node:path";
import type { z } from "zod";
import { dockerHub, parseReference } from "../../images/reference.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

/** The store of images. */
export interface ImagesConfig {
  /** Where their files are. */
  readonly directory: string;
  /** The first is that of names without one. */
  readonly registries: readonly [string, ...string[]];
}

export const imagesConfig = (
  { registries }: z.infer<typeof configSchema>["images"],
  stateDir: string,
  read: Reader,
): ImagesConfig => ({
  directory: join(stateDir, "image-store"),
  registries: read("images.registries", registries, (list) => {
    const [first = dockerHub, ...others] = list.map(parseRegistry);
    return [first, ...others] as const;
  }),
});

function parseRegistry(text: string): string {
  if (parseReference(`${text}/image`).registry === text) return text;
  throw new TypeError("write HOST or HOST:PORT, with a dot in HOST, or localhost");
}
