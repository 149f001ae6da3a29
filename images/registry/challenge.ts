/** What a registry asks for before it answers (RFC 9110, 11.6.1). */
export interface Challenge {
  /** In lower case: `bearer`, `basic`. */
  readonly scheme: string;
  readonly parameters: Readonly<Record<string, string>>;
}

const longest = 8192;
const scheme = /^\s*([A-Za-z]+)(?:\s+|$)/;
const parameter = /\s*([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)/y;

/** The first challenge of a `WWW-Authenticate`; undefined where there is none to be read. */
export function parseChallenge(header: string): Challenge | undefined {
  const begin = header.length > longest ? null : scheme.exec(header);
  if (begin === null) return undefined;
  const parameters: [string, string][] = [];
  parameter.lastIndex = begin[0].length;
  for (let match = parameter.exec(header); match !== null; match = parameter.exec(header)) {
    const [, name = "", quoted, plain = ""] = match;
    parameters.push([name.toLowerCase(), quoted?.replaceAll(/\\(.)/g, "$1") ?? plain]);
  }
  return { scheme: (begin[1] ?? "").toLowerCase(), parameters: Object.fromEntries(parameters) };
}
