/** Put in by the bundler from package.json. */
declare const podnetVersion: string;

/** Version of this program. */
export const version: string = podnetVersion;
