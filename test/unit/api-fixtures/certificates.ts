import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";

const exec = promisify(execFile);

export interface Pair {
  readonly cert: string;
  readonly key: string;
}

/**
 * A certificate authority and what it signed for both ends, by openssl; `names` are what the server
 * is called by.
 */
export async function makeCertificates(
  folder: string,
  names = "DNS:localhost",
): Promise<{ readonly ca: string; readonly server: Pair; readonly client: Pair }> {
  const at = (name: string): string => path.join(folder, name);
  const read = (name: string): string => readFileSync(at(name), "utf8");
  const fresh = (name: string, ...rest: string[]): Promise<unknown> =>
    exec("openssl", [
      ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(" "),
      "-subj",
      `/CN=${name}`,
      "-keyout",
      at(`${name}.key`),
      "-out",
      at(`${name}.crt`),
      ...rest,
    ]);
  const signed = ["-CA", at("ca.crt"), "-CAkey", at("ca.key")];
  await fresh("ca");
  await fresh("server", ...signed, "-addext", `subjectAltName=${names}`);
  await fresh("client", ...signed);
  const pair = (name: string): Pair => ({ cert: read(`${name}.crt`), key: read(`${name}.key`) });
  return { ca: read("ca.crt"), server: pair("server"), client: pair("client") };
}
