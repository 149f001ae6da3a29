import type { Command } from "commander";
import type { Podnet } from "../../../api/client.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument } from "../../output.ts";
import { collect } from "../../parse.ts";
import { count } from "../../views/text.ts";
import { type Asked, policyName, readAsked } from "./documents.ts";
import { printItem, plainItem } from "./print.ts";
import type { Item, ToCome } from "./item.ts";
import { planNetwork } from "./networks.ts";
import { planPod } from "./pods.ts";
import { planPolicy } from "./policies.ts";

interface Options extends OutputOptions {
  readonly file: readonly string[];
  readonly dryRun?: boolean;
  readonly plan?: boolean;
}

const more = `
A file has documents with --- between them, each with kind: Pod, Network, Policy, or NetworkPolicy of Kubernetes, and the
fields of a pod file, of a network or of a policy. What a document names becomes as it says: labels, ports, interfaces and
disks that it leaves out of such a list go. What it does not name stays. What is in no document stays. Networks come first, then
policies, then pods. podnet first looks at all documents; if one cannot be applied, nothing is changed.

Examples:
  podnet apply -f site.yaml --dry-run     what would change
  podnet apply -f site.yaml               again and again: the second time nothing changes
  podnet apply -f networks.yaml -f pods.yaml`;

/** `podnet apply`. */
export function addApply(program: Command, context: Context): void {
  addOutput(program.command("apply").description("make pods, networks and policies as files say"))
    .requiredOption("-f, --file <file>", "YAML or JSON; - is standard input; repeatable", collect)
    .option("--dry-run", "show what would change, and do nothing")
    .option("--plan", "the same as --dry-run")
    .addHelpText("after", more)
    .action(async (options: Options) => {
      const asked = await readAsked(options.file);
      const isDry = options.dryRun === true || options.plan === true;
      await withPodnet(context, options, async (podnet, signal) => {
        const planned = await planAll(podnet, asked, signal);
        const refused = refusedOf(planned.map(({ item }) => item));
        if (isDry || refused > 0) {
          const items = planned.map(({ item }) => item);
          for (const item of items) print(context, options, item);
          await printEnd(context, options, items, true);
        }
        if (refused > 0) throw refusal(refused, isDry ? "" : "Nothing was changed. ");
        if (!isDry) await applyAll(context, options, podnet, planned, signal);
      });
    });
}

/** A document, and what it means for what exists. */
interface Planned {
  readonly asked: Asked;
  readonly item: Item;
}

async function planAll(
  podnet: Podnet,
  all: readonly Asked[],
  signal: AbortSignal,
): Promise<Planned[]> {
  const planned: Planned[] = [];
  const networks = new Map<string, "create" | "change">();
  const pods = new Set<string>();
  for (const asked of all) {
    const item = await planOne(podnet, asked, { pods, networks }, signal);
    planned.push({ asked, item });
    const { kind, name, action } = item;
    if (kind === "pod" && action === "create") pods.add(name);
    if (kind === "network" && action !== "unchanged") networks.set(name, action);
  }
  return planned;
}

async function planOne(
  podnet: Podnet,
  asked: Asked,
  toCome: ToCome,
  signal: AbortSignal,
): Promise<Item> {
  try {
    if (asked.kind === "network") return await planNetwork(podnet, asked, signal);
    if (asked.kind === "pod") return await planPod(podnet, asked, toCome, signal);
    return await planPolicy(podnet, asked.named, toCome, signal);
  } catch (thrown) {
    const name = asked.kind === "policy" ? policyName(asked.named) : asked.spec.name;
    throw toPodnetError(thrown).with({ step: `${asked.kind} ${name}` });
  }
}

const nothingToCome: ToCome = { pods: new Set(), networks: new Map() };

const refusedOf = (items: readonly Item[]): number =>
  items.flatMap(({ changes }) => changes).filter((each) => each.refused !== undefined).length;

const refusal = (refused: number, done: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `${count(refused, "change")} cannot be made`, {
    hint: `${done}Do what each line with ! says, or leave its field`,
  });

/**
 * Applies one after the other. Each is compared once more right before: others may have changed it
 * since, and what came before it in the files may have. What is done before a failure stays; the
 * next apply finds it.
 */
async function applyAll(
  context: Context,
  options: Options,
  podnet: Podnet,
  planned: readonly Planned[],
  signal: AbortSignal,
): Promise<void> {
  const done: Item[] = [];
  for (const { asked, item: before } of planned) {
    const item =
      before.action === "unchanged"
        ? before
        : await applyOne(podnet, asked, signal).catch(async (thrown: unknown) => {
            if (options.output !== "table") await printEnd(context, options, done, false);
            throw unfinished(thrown, before, done);
          });
    done.push(item);
    print(context, options, item);
  }
  await printEnd(context, options, done, false);
}

async function applyOne(podnet: Podnet, asked: Asked, signal: AbortSignal): Promise<Item> {
  const item = await planOne(podnet, asked, nothingToCome, signal);
  const refused = refusedOf([item]);
  if (refused > 0) throw refusal(refused, "It was changed by others just now. ");
  if (item.action !== "unchanged") for (const step of item.steps) await step(podnet, signal);
  return item;
}

/** The error, with what was done before it. */
function unfinished(thrown: unknown, item: Item, done: readonly Item[]): PodnetError {
  const { code, message, hint, field, step, details, cause } = toPodnetError(thrown);
  const made = done.filter(({ action }) => action !== "unchanged").length;
  const before =
    made === 0 ? "" : `${count(made, "document")} before it ${made === 1 ? "is" : "are"} applied. `;
  return new PodnetError(code, message, {
    step: step ?? `${item.kind} ${item.name}`,
    hint: `${hint === undefined ? "" : `${hint}. `}${before}Apply again for the rest`,
    details,
    cause,
    ...(field === undefined ? {} : { field }),
  });
}

function print({ io }: Context, { output }: Options, item: Item): void {
  if (output === "table") printItem(io.stdout, item);
}

async function printEnd(
  { io }: Context,
  { output }: Options,
  items: readonly Item[],
  isDry: boolean,
): Promise<void> {
  if (output !== "table") {
    const body = { dryRun: isDry, items: items.map(plainItem) };
    await printDocument(io, output, document("Applied", body));
    return;
  }
  const many = (action: Item["action"]): number =>
    items.filter((item) => item.action === action).length;
  const will = isDry ? "to be " : "";
  io.stdout.write(
    `${many("create")} ${will}created, ${many("change")} ${will}changed, ${many("unchanged")} unchanged\n`,
  );
}
