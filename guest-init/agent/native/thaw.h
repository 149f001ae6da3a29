#ifndef PODNET_THAW_H
#define PODNET_THAW_H

#include "quickjs.h"

/* Instantiates the engine with an empty memory of `pages` pages of 64 KiB. */
void thaw_instance(Z_quickjs_instance_t *instance, uint32_t pages, uint32_t stack_pointer);

#endif
