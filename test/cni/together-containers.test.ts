// What containers are given and lose, one file after the other on one podnetd: as
// test/vm/together-pods.test.ts. Each leaves nothing after each of its tests.

import "./attach.test.ts";
import "./killed.test.ts";
import "./replay.test.ts";
