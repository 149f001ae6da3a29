import type { Command } from "commander";
import type { Podnet } from "../../../api/client.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument } from "../../output.ts";
import { collect } from "../../parse.ts";
import { count } from "../../views/text.ts";
import { type Asked, policyName, readAsked } from "./documents.ts";
import { printItem, plainItem } from "./print.ts";
import type { Item } from "./item.ts";
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
fields of a pod file, of a network or of a policy. What a document names becomes as it says: labels, ports and interfaces
that it leaves out of such a list go. What it does not name stays. What is in no document stays. Networks come first, then
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
      const items = await withPodnet(context, options, async (podnet, signal) => {
        const planned = await planAll(podnet, asked, signal);
        const refused = planned.flatMap(({ changes }) => changes).filter((each) => each.refused);
        if (isDry || refused.length > 0) print(context, options, planned);
        if (refused.length > 0) throw refusal(refused.length, isDry);
        if (!isDry) await applyAll(context, options, podnet, planned, signal);
        return planned;
      });
      await printEnd(context, options, items, isDry);
    });
}

async function planAll(
  podnet: Podnet,
  asked: readonly Asked[],
  signal: AbortSignal,
): Promise<Item[]> {
  const items: Item[] = [];
  const toCome = (kind: Item["kind"]): ReadonlySet<string> =>
    new Set(items.flatMap((item) => (isNew(item) && item.kind === kind ? [item.name] : [])));
  for (const each of asked) {
    try {
      if (each.kind === "network") items.push(await planNetwork(podnet, each, signal));
      else if (each.kind === "pod")
        items.push(await planPod(podnet, each, { networks: toCome("network") }, signal));
      else items.push(await planPolicy(podnet, each.named, toCome("pod"), signal));
    } catch (thrown) {
      const name = each.kind === "policy" ? policyName(each.named) : each.spec.name;
      throw toPodnetError(thrown).with({ step: `${each.kind} ${name}` });
    }
  }
  return items;
}

const isNew = ({ action }: Item): boolean => action === "create";

const refusal = (refused: number, isDry: boolean): PodnetError =>
  new PodnetError("UNSUPPORTED", `${count(refused, "change")} cannot be made`, {
    hint: `${isDry ? "" : "Nothing was changed. "}Do what each line with ! says, or leave its field`,
  });

/** Applies one after the other. What is done before a failure stays; the next apply finds it. */
async function applyAll(
  context: Context,
  options: Options,
  podnet: Podnet,
  items: readonly Item[],
  signal: AbortSignal,
): Promise<void> {
  for (const item of items) {
    try {
      if (item.action !== "unchanged") for (const step of item.steps) await step(podnet, signal);
    } catch (thrown) {
      throw toPodnetError(thrown).with({
        step: `${item.kind} ${item.name}`,
        hint: "What is listed above is done: apply again for the rest",
      });
    }
    print(context, options, [item]);
  }
}

function print({ io }: Context, { output }: Options, items: readonly Item[]): void {
  if (output !== "table") return;
  for (const item of items) printItem(io.stdout, item);
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
