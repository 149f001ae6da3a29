/** Where the page is: a path that other servers on this address do not know. */
export const base = new URL(".", import.meta.url).pathname;
