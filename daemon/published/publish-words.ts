/**
 * The words of a refusal for its reader, a user of pods or of a runtime: the publisher, the field,
 * and what to write instead.
 */
export interface PublishWords {
  readonly publisher: string;
  /** Of entry `i`, and of its parts. */
  readonly entry: (i: number) => string;
  readonly hostIp: string;
  readonly hostPort: string;
  /** Addresses to publish at. */
  readonly addresses: string;
  /** The features that work without firewall rules. */
  readonly unfiltered: string;
  /** What an address of a missing family would take. */
  readonly family: string;
  /** Another host port than a taken one. */
  readonly otherPort: string;
}

export const podWords: PublishWords = {
  publisher: "pod",
  entry: (i) => `ports[${i}]`,
  hostIp: "host_ip",
  hostPort: "host_port",
  addresses: "Give an address of the host, 0.0.0.0, :: or *; or leave it out, for the host only",
  unfiltered:
    "Set disable_iptables to false, or give no address: on loopback podnetd itself serves the port",
  family:
    "Give it an interface on a network of podnet's with such an address, or publish elsewhere",
  otherPort: "Choose another host port, or 0 to have one chosen",
};

/** In a runtime's configuration no address is every one, and a host port of 0 is none. */
export const containerWords: PublishWords = {
  publisher: "container",
  entry: (i) => `runtimeConfig.portMappings[${i}]`,
  hostIp: "hostIP",
  hostPort: "hostPort",
  addresses: "Give an address of the host, 0.0.0.0 or ::; or none, for all of them",
  unfiltered:
    "Set disable_iptables to false, or give 127.0.0.1: there podnetd itself serves the port",
  family:
    "Publish at an address of another family, or give the container's network a subnet of this one",
  otherPort: "Choose another host port",
};
