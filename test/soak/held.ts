/**
 * Loaded into podnetd before its own modules (`NODE_OPTIONS=--import`): at SIGUSR2 it collects all
 * garbage and writes what is still referenced, in bytes, to the file that PODNET_HELD names.
 * Resident memory says little within a few cycles: it moves by tens of MiB with what the collector
 * has not come to.
 */
import { renameSync, writeFileSync } from "node:fs";
import { isMainThread } from "node:worker_threads";
import { heldBytes } from "./collect.ts";

const file = process.env["PODNET_HELD"];
if (isMainThread && file !== undefined)
  process.on("SIGUSR2", () => {
    writeFileSync(`${file}.new`, String(heldBytes()));
    renameSync(`${file}.new`, file);
  });
