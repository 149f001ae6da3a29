/*
 * What engine.c is made of, for those who look after the engine itself: they alone see its memory.
 */
#ifndef PODNET_INSIDE_H
#define PODNET_INSIDE_H

#include "quickjs.h"
#include "wasm-rt-impl.h"

extern Z_quickjs_instance_t engine;
/* 128 bytes of the engine's memory, for out parameters and short texts. */
extern uint32_t scratch;

#endif
