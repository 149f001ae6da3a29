/** Words and colours of states; the word is always there too, for who does not see the colour. */
import { PodState, type Pod } from "../../api/gen/podnet/v1/pod_pb.ts";

const words: ReadonlyMap<number, string> = new Map(
  Object.entries(PodState).map(([name, value]) => [value, name.toLowerCase()]),
);

export const stateWord = ({ state }: Pod): string => words.get(state) ?? "unknown";

export type Tone = "good" | "warn" | "bad" | "idle";

export function toneOf({ state, reason }: Pod): Tone {
  if (state === PodState.FAILED) return "bad";
  if (state === PodState.RUNNING) return reason === "" ? "good" : "warn";
  if (state === PodState.PAUSED || state === PodState.STOPPED) return "idle";
  return "warn";
}
