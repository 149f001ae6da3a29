/** Runs a parser over a value; what it throws becomes an error about the key. */
export type Reader = <In, Out>(key: string, value: In, parse: (value: In) => Out) => Out;
