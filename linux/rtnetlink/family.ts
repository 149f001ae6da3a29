import { familyOf, type Ip, type IpPrefix, type Cidr } from "../../core/address.ts";
import { AF_INET, AF_INET6 } from "./constants.ts";

/** AF_INET or AF_INET6 of an address. */
export const familyNumber = (address: Ip | IpPrefix | Cidr): number =>
  familyOf(address) === 4 ? AF_INET : AF_INET6;

/** Address family of a filter; 0 means both. */
export const familyFilter = (family: 4 | 6 | undefined): number =>
  family === undefined ? 0 : family === 4 ? AF_INET : AF_INET6;
