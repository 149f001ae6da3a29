import { parsePlaceFile, parseReadFile, parseWriteFile } from "../protocol/file-messages.ts";
import { placeFile, readFile, writeFile } from "./files.ts";
import { onlyAgent } from "./processes.ts";
import { type Reply, done } from "./reply.ts";

/** WRITEFILE. */
export function writeGuestFile(payload: Uint8Array): Reply {
  const { container, file, data } = parseWriteFile(payload);
  onlyAgent(container);
  writeFile(file, data);
  return done;
}

/** READFILE: at most what one control frame carries. */
export function readGuestFile(payload: Uint8Array): Reply {
  const { container, file } = parseReadFile(payload);
  onlyAgent(container);
  return { payload: readFile(file) };
}

/** PLACEFILE. */
export function placeGuestFile(payload: Uint8Array): Reply {
  placeFile(parsePlaceFile(payload));
  return done;
}
