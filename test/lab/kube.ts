import { type ChildProcess, execFileSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Account, allRights } from "../peers/kube-api/server.ts";
import type { ProgramOptions } from "../peers/kube-api/main.ts";
import type { Machine } from "./lab.ts";

const top = path.resolve(import.meta.dirname, "../..");
const kubectlProgram = path.join(top, "build/kubectl/usr/bin/kubectl");
const program = path.join(top, "test/peers/kube-api/main.ts");
const port = 6443;

/** A cluster's control plane, as far as an overlay is concerned: an API server that is played. */
export interface KubeLab extends AsyncDisposable {
  /** The kubeconfig of podnetd, with its token in a file. */
  readonly kubeconfig: string;
  /** Runs Debian's kubectl as an administrator. */
  kubectl(...words: readonly string[]): Promise<string>;
  /** Makes a Node, as a kubelet and kube-controller-manager do. */
  createNode(name: string, ...podCIDRs: readonly string[]): Promise<void>;
  /** flannel's annotations of a Node, by the names behind the prefix. */
  annotations(name: string): Promise<Readonly<Record<string, string>>>;
  /** The status of a Node's condition NetworkUnavailable; "" if it has none. */
  condition(name: string): Promise<string>;
  /** podnetd's token is refused from now on, and another one is in its file. */
  replaceToken(): void;
}

/** Starts it on a machine, at one of its addresses. */
export async function startKube(machine: Machine, address: string): Promise<KubeLab> {
  if (!existsSync(kubectlProgram))
    throw new Error("There is no kubectl; run scripts/unpack-kubectl");
  const directory = mkdtempSync(path.join(tmpdir(), "kube-"));
  const file = (name: string): string => path.join(directory, name);
  makeCertificate(file("server"), address);
  let token = 0;
  const write = (): void => {
    const accounts: Record<string, Account> = {
      admin: { user: "admin", rights: ["*"] },
      [`podnetd-${token}`]: { user: "podnetd", rights: allRights },
    };
    writeFileSync(file("token"), `podnetd-${token}\n`);
    writeFileSync(file("accounts.json"), JSON.stringify(accounts));
  };
  write();
  const kubeconfig = (name: string, user: string): string => {
    writeFileSync(file(name), kubeconfigText(`https://${address}:${port}`, user));
    return file(name);
  };
  const admin = kubeconfig("admin.conf", "token: admin");
  const options: ProgramOptions = {
    address,
    port,
    key: file("server.key"),
    cert: file("server.crt"),
    accounts: file("accounts.json"),
  };
  const child = machine.spawn([process.execPath, program, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout as NonNullable<ChildProcess["stdout"]>, "data");
  const kubectl = (...words: readonly string[]): Promise<string> =>
    machine.run("env", `HOME=${directory}`, kubectlProgram, `--kubeconfig=${admin}`, ...words);
  const annotationPrefix = "flannel.alpha.coreos.com/";
  return {
    kubeconfig: kubeconfig("podnetd.conf", "tokenFile: token"),
    kubectl,
    async createNode(name, ...podCIDRs) {
      const node = {
        apiVersion: "v1",
        kind: "Node",
        metadata: { name },
        spec: { podCIDR: podCIDRs[0], podCIDRs },
        status: { conditions: [{ type: "NetworkUnavailable", status: "True" }] },
      };
      writeFileSync(file(`${name}.json`), JSON.stringify(node));
      await kubectl("create", "--validate=false", "-f", file(`${name}.json`));
    },
    async annotations(name) {
      const shown = await kubectl("get", "node", name, "-o", "json");
      const { metadata } = JSON.parse(shown) as {
        metadata: { annotations?: Record<string, string> };
      };
      return Object.fromEntries(
        Object.entries(metadata.annotations ?? {}).flatMap(([key, value]) =>
          key.startsWith(annotationPrefix) ? [[key.slice(annotationPrefix.length), value]] : [],
        ),
      );
    },
    condition: (name) =>
      kubectl(
        "get",
        "node",
        name,
        "-o",
        'jsonpath={.status.conditions[?(@.type=="NetworkUnavailable")].status}',
      ),
    replaceToken() {
      token++;
      write();
    },
    async [Symbol.asyncDispose]() {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const kubeconfigText = (server: string, user: string): string => `
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "${server}", certificate-authority: server.crt}}]
users: [{name: me, user: {${user}}}]
`;

function makeCertificate(file: string, address: string): void {
  const words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
  const name = ["-subj", "/CN=kube-apiserver", "-addext", `subjectAltName=IP:${address}`];
  const files = ["-keyout", `${file}.key`, "-out", `${file}.crt`];
  execFileSync("openssl", [...words.split(" "), ...name, ...files], { stdio: "ignore" });
}
