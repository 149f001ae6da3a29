import { type ConnectOptions, connectPodnet, type Podnet } from "../api/client.ts";
import { Pods } from "./pods.ts";

/** A connection to podnetd. `using` closes it; pods stay. */
export interface Client extends Disposable {
  readonly pods: Pods;
  /** The generated clients of every service, for what has no method here. */
  readonly services: Podnet;
  close(): void;
}

/**
 * Connects to podnetd: by its unix socket, or by `url` and certificates. Nothing is sent before the
 * first call. Every call throws `PodnetError`.
 */
export function connect(options: ConnectOptions = {}): Client {
  const services = connectPodnet(options);
  const close = (): void => services.close();
  return { pods: new Pods(services), services, close, [Symbol.dispose]: close };
}
