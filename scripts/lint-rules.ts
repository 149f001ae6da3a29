/**
 * Lint rules of podnet's own, which `.oxlintrc.json` names. Both find a promise that is started and
 * has no handler while something else is awaited: when it rejects meanwhile, its rejection is
 * unhandled, and ends the program.
 */

interface Node {
  readonly type: string;
  readonly parent?: Node | null;
  readonly range: readonly [number, number];
}
interface Call extends Node {
  readonly callee: Node & {
    readonly object?: { readonly name?: string };
    readonly property?: { readonly name?: string };
  };
  readonly arguments: readonly Node[];
}
interface Declarator extends Node {
  readonly init?: Node | null;
}
interface Variable {
  readonly references: readonly { readonly identifier: Node; isRead(): boolean }[];
}
interface Context {
  readonly sourceCode: { getDeclaredVariables(node: Node): readonly Variable[] };
  report(problem: { readonly node: Node; readonly message: string }): void;
}

const combiners = new Set(["all", "allSettled", "race", "any"]);

const isFunction = ({ type }: Node): boolean =>
  type === "ArrowFunctionExpression" || /^Function(?:Expression|Declaration)$/.test(type);

/** Whether the node is a call of `Promise.all` and its like. */
const isCombiner = (node: Node): node is Call => {
  if (node.type !== "CallExpression") return false;
  const { object, property } = (node as Call).callee;
  return object?.name === "Promise" && combiners.has(property?.name ?? "");
};

/** The function that the node belongs to; undefined at the top of a file. */
function functionOf(node: Node): Node | undefined {
  for (let at = node.parent; at !== null && at !== undefined; at = at.parent)
    if (isFunction(at)) return at;
  return undefined;
}

/** The call of `Promise.all` and its like whose arguments hold the node, within one function. */
function combinerOf(node: Node): Call | undefined {
  for (let at = node; !isFunction(at); at = at.parent) {
    if (at.parent === null || at.parent === undefined) return undefined;
    if (isCombiner(at.parent) && at.parent.arguments.includes(at)) return at.parent;
  }
  return undefined;
}

/**
 * No `await` inside the arguments of `Promise.all` and its like: what was started before it has no
 * handler yet.
 */
const noAwaitAmongPromises = {
  create: (context: Context) => ({
    AwaitExpression(node: Node) {
      if (combinerOf(node) === undefined) return;
      const message = "An await among promises: those already started have no handler meanwhile";
      context.report({ node, message });
    },
  }),
};

/**
 * No `await` of something else between the start of a promise that is kept in a variable and its
 * first use.
 */
const noAwaitBeforeHandler = {
  create(context: Context) {
    const awaits: Node[] = [];
    const started: Declarator[] = [];
    const check = (declarator: Declarator): void => {
      const [variable] = context.sourceCode.getDeclaredVariables(declarator);
      const uses = (variable?.references ?? []).filter((each) => each.isRead());
      const isPromise = uses.some(
        ({ identifier }) =>
          identifier.parent?.type === "AwaitExpression" || combinerOf(identifier) !== undefined,
      );
      const first = uses[0]?.identifier;
      if (!isPromise || first === undefined) return;
      const within = functionOf(declarator);
      const other = awaits.find(
        (each) =>
          each !== first.parent &&
          each.range[0] > declarator.range[1] &&
          each.range[0] < first.range[0] &&
          each !== combinerOf(first)?.parent &&
          functionOf(each) === within,
      );
      if (other === undefined) return;
      const message = "A promise was started before this await and has no handler meanwhile";
      context.report({ node: other, message });
    };
    return {
      AwaitExpression: (node: Node) => void awaits.push(node),
      VariableDeclarator(node: Declarator) {
        if (node.init?.type === "CallExpression") started.push(node);
      },
      "Program:exit": () => started.forEach(check),
    };
  },
};

export default {
  meta: { name: "podnet" },
  rules: {
    "no-await-among-promises": noAwaitAmongPromises,
    "no-await-before-handler": noAwaitBeforeHandler,
  },
};
