import { existsSync } from "node:fs";
import { join } from "node:path";

const built = join(import.meta.dirname, "../../build/jail/podnet-jail");
const packaged = "/usr/lib/podnet/podnet-jail";

/** The program that shuts QEMU in: this checkout's own when it is built, else that of a package. */
export const findLauncher = (): string => (existsSync(built) ? built : packaged);
