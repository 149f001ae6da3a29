/**
 * Promises without a planted fault that one of their linked tests notices, each with the reason.
 * This list may only become shorter (test/static/promise-faults.test.ts).
 */
export const uncovered: Readonly<Record<string, string>> = {
  30: "It links to benchmarks, which measure and judge nothing: no fault can make them fail.",
};
