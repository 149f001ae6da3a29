/** Addresses in what `ip -o address` prints, but those that every lo has. Pure. */
export const loopbackAddresses = (text: string): string[] =>
  [...text.matchAll(/\binet6? (\S+)/g)]
    .map(([, address = ""]) => (address.includes("/") ? address : withLength(address)))
    .filter((address) => address !== "127.0.0.1/8" && address !== "::1/128");

const withLength = (address: string): string => `${address}/${address.includes(":") ? 128 : 32}`;
