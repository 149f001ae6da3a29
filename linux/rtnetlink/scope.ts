/** Scopes of addresses and routes, RT_SCOPE_*: include/uapi/linux/rtnetlink.h (Linux 6.1). */
const numbers = { global: 0, site: 200, link: 253, host: 254, nowhere: 255 } as const;

/**
 * How far away something is: `link` is directly reachable, `host` on this machine; other numbers as
 * they are.
 */
export type Scope = keyof typeof numbers | number;

export const scopeNumber = (scope: Scope): number =>
  typeof scope === "number" ? scope : numbers[scope];

const names = new Map<number, Scope>();
for (const name of Object.keys(numbers) as (keyof typeof numbers)[]) names.set(numbers[name], name);

export const scopeName = (value: number): Scope => names.get(value) ?? value;
