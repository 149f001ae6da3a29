/*
 * The engine as wasm2c wrote it, and a way to instantiate it without its memory. The memory is that
 * of a program that already ran, at build time (frozen.h), and has changed since instantiation: the
 * initial contents must not be copied into it again.
 */
#include "quickjs.c"

#include "thaw.h"

void thaw_instance(Z_quickjs_instance_t *instance, uint32_t pages, uint32_t stack_pointer) {
  Z_quickjs_init_module();
  init_instance_import(instance, NULL, NULL);
  instance->w2c___stack_pointer = stack_pointer;
  /* The limit of the module itself: init_memories would have said the same. */
  wasm_rt_allocate_memory(&instance->w2c_memory, pages, 65536);
  init_tables(instance);
  init_data_instances(instance);
  init_elem_instances(instance);
}
