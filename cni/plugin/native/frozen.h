/*
 * A program that has started already. Its state after the start is the engine's memory and a few
 * numbers: the seed, the same program linked without them, writes both (freeze), and they are
 * linked into the program proper, which continues from there (thaw). Unused pages are never read
 * from the file.
 */
#ifndef PODNET_FROZEN_H
#define PODNET_FROZEN_H

#include <stdint.h>

/*
 * Writes the memory to the file `image`, and to `numbers` what thaw has to know. 0 when it failed,
 * with errno.
 */
int freeze(uint32_t function, const char *image, const char *numbers);

/*
 * The function that was handed to freeze, ready to be called. 0 when the memory cannot be put in
 * place.
 */
uint32_t thaw(void);

#endif
