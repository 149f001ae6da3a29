import type { Podnet } from "../../api/client.ts";
import { errorTexts } from "../error-texts.ts";
import { nextArgument, type Typed } from "./typed.ts";

/** Where the values of an argument or option come from. */
type Source = (podnet: Podnet, typed: Typed, signal: AbortSignal) => Promise<readonly string[]>;

const pods: Source = async (podnet, _, signal) =>
  (await podnet.pods.list({}, { signal })).pods.map(({ name }) => name);

const networks: Source = async (podnet, _, signal) =>
  (await podnet.networks.list({}, { signal })).networks.map(({ name }) => name);

const policies: Source = async (podnet, _, signal) =>
  (await podnet.policies.list({}, { signal })).policies.map(({ name }) => name);

const images: Source = async (podnet, _, signal) =>
  (await podnet.images.list({}, { signal })).images.flatMap(({ names }) => names);

/** Of the pod that is named before them. */
const interfaces: Source = async (podnet, { args: [idOrName = ""] }, signal) =>
  (await podnet.pods.get({ idOrName }, { signal })).pod?.interfaces.map(
    ({ guestName }) => guestName,
  ) ?? [];

const execs: Source = async (podnet, _, signal) => {
  const { pods: all } = await podnet.pods.list({}, { signal });
  const ofEach = all.map(({ name }) => podnet.pods.listExecs({ idOrName: name }, { signal }));
  return (await Promise.all(ofEach)).flatMap((answer) => answer.execs.map(({ id }) => id));
};

const places: Source = async (...args) => (await pods(...args)).map((name) => `${name}:`);

/** By the name of the argument, in whatever command. */
const byArgument: Readonly<Record<string, Source>> = { pod: pods, pods, image: images };

/** By command and argument, where the name alone does not say it. */
const byCommand: Readonly<Record<string, Source>> = {
  "network list name": networks,
  "network get name": networks,
  "network update name": networks,
  "network delete name": networks,
  "policy get name": policies,
  "policy delete name": policies,
  "interface set name": interfaces,
  "interface remove name": interfaces,
  "image untag name": images,
  "execs get id": execs,
  "execs wait id": execs,
  "execs kill id": execs,
  "execs logs id": execs,
  "cp source": places,
  "cp destination": places,
  "explain code": async () => Object.keys(errorTexts),
};

/** By option, in whatever command; an interface is one of the pod's where it is named alone. */
const byOption: Readonly<Record<string, Source>> = {
  "--network": networks,
  "--image": images,
  "limit --interface": interfaces,
  "capture --interface": interfaces,
};

/** What podnetd has for the word that is being typed; undefined where it has nothing. */
export function sourceOf(typed: Typed): Source | undefined {
  const { option, path, word } = typed;
  const { long } = option ?? {};
  if (long !== undefined && long !== null) return byOption[`${path} ${long}`] ?? byOption[long];
  if (option !== undefined || word.startsWith("-")) return undefined;
  const name = nextArgument(typed)?.name();
  if (name === undefined) return undefined;
  return byCommand[`${path} ${name}`] ?? byArgument[name];
}
