/*
 * The internals of engine.c, for code that manages the engine itself: only that code sees its
 * memory.
 */
#ifndef PODNET_INSIDE_H
#define PODNET_INSIDE_H

#include "quickjs.h"
#include "wasm-rt-impl.h"

extern Z_quickjs_instance_t engine;
/* 128 bytes of the engine's memory, for out parameters and short texts. */
extern uint32_t scratch;

#endif
