import { create } from "@bufbuild/protobuf";
import type { Command } from "commander";
import { LifetimeSchema, type PodSpec } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { parseDuration } from "../parse.ts";
import { usage } from "../usage.ts";
import { FlagWriter, type GivenFlags } from "./given.ts";

/** The flags that say when podnetd ends a pod by itself. */
export interface LifetimeFlags {
  readonly ttl?: string;
  readonly idleStop?: string;
  readonly rm?: boolean;
}

export const addLifetimeFlags = (command: Command): Command =>
  command
    .option("--ttl <duration>", "stop the pod once this time is over, from each start on, e.g. 2h")
    .option(
      "--idle-stop <duration>",
      "stop it when it has gone so long without traffic and callers",
    );

/** Puts them into a spec; `--rm` decides what follows `--ttl`. */
export function putLifetime(spec: PodSpec, options: LifetimeFlags, given: GivenFlags): void {
  const { ttl, idleStop, rm } = options;
  if (ttl === undefined && idleStop === undefined) return;
  const lifetime = (spec.lifetime ??= create(LifetimeSchema));
  const flags = new FlagWriter(options, given);
  flags.put("ttl", "lifetime.ttl_s", (text) => {
    lifetime.ttlS = secondsOf("--ttl", text);
  });
  flags.put("idleStop", "lifetime.idle_stop_s", (text) => {
    lifetime.idleStopS = secondsOf("--idle-stop", text);
  });
  if (ttl !== undefined && rm === true) lifetime.ttlDelete = true;
}

function secondsOf(flag: string, text: string): number {
  const seconds = parseDuration(flag, text) / 1000;
  if (Number.isInteger(seconds) && seconds < 2 ** 32) return seconds;
  throw usage(`${flag} takes whole seconds`, "Write 30s, 10m, 2h or 1d");
}
