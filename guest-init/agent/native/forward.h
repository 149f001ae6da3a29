#ifndef PODNET_FORWARD_H
#define PODNET_FORWARD_H

#include "engine.h"

/*
 * forward(from, to, frame, header, most, out): passes on what a process wrote, as frames of the tty
 * channel. `frame` begins with a frame's header, whose last four bytes get its length (big-endian,
 * header included). Answers 0 when there is nothing to read now, 1 after `most` frames, 2 at the
 * end of `from`, 3 when `to` took a frame in part or not at all: what is left of it is from out[0]
 * to out[1]; 4 like 0 after much was read, out[0] bytes, of a pipe that is a large one from now on.
 * Negative: reading failed. In JavaScript each frame would cost twenty times as much.
 */
double sys_forward(struct call *call);

#endif
