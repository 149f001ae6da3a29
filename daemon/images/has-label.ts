/** Whether an image has a label: `NAME`, or `NAME=VALUE`. Pure. */
export function hasLabel(labels: Readonly<Record<string, string>>, asked: string): boolean {
  const at = asked.indexOf("=");
  const name = at < 0 ? asked : asked.slice(0, at);
  return Object.hasOwn(labels, name) && (at < 0 || labels[name] === asked.slice(at + 1));
}
