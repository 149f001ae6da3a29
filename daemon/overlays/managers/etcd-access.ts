import { readFileSync } from "node:fs";
import { PodnetError } from "../../../core/errors.ts";
import { connectEtcd, type EtcdOptions } from "../../../etcd/client.ts";
import type { EtcdConfig } from "../../config/overlay.ts";

/**
 * A client of the configured etcd; it sends nothing yet. Throws `CONFIG_INVALID` if one of its
 * files cannot be read.
 */
export const openEtcd = (config: EtcdConfig): ReturnType<typeof connectEtcd> =>
  connectEtcd(etcdOptions(config));

function etcdOptions({ endpoints, username, passwordFile, ...files }: EtcdConfig): EtcdOptions {
  const tls = Object.fromEntries(
    (["ca", "cert", "key"] as const).flatMap((name) => {
      const path = files[name];
      return path === undefined ? [] : [[name, read(`overlay.etcd.${name}`, path)] as const];
    }),
  );
  if (username === undefined || passwordFile === undefined) return { endpoints, tls };
  const [password = ""] = read("overlay.etcd.password_file", passwordFile).split("\n");
  return { endpoints, tls, credentials: { user: username, password } };
}

function read(field: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new PodnetError("CONFIG_INVALID", `File "${path}" of etcd cannot be read`, {
      field,
      hint: "Check that it is there, and its permissions",
      cause,
    });
  }
}
