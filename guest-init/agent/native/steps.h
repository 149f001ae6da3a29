/* Steps that the host has decided: steps.c. */
#ifndef PODNET_STEPS_H
#define PODNET_STEPS_H

#include <poll.h>

#include "engine.h"

/* Datagrams of netlink; described in sys.c. */
double receive_all(int fd, struct bytes into);

/* What has come from a port and was not taken here, as by read(2); -1 when nothing has. */
double take_rest(int fd, uint8_t *into, uint32_t length);

/*
 * Does what came as steps at a port that waits for commands, one frame after the other, and answers
 * each. 1 when nothing is left of what has come.
 */
int serve_steps(int fd);

double sys_steps(struct call *call);
double sys_results(struct call *call);
double sys_useNetlink(struct call *call);
double sys_epoch(struct call *call);
double sys_heard(struct call *call);

#endif
