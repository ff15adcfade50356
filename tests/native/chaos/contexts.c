/* Contexts of every kind with what lives in them, their limits, code, and work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#define CODE (4 * MIB)     /* the simulated card's module, and more */
#define CONTEXT (32 * MIB) /* the same of a context */

const char SPIN[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                    ".visible .entry aliquot_spin(.param .u64 nanoseconds)\n{\n"
                    ".reg .pred %more;\n.reg .b64 %now, %end, %length;\n"
                    "ld.param.u64 %length, [nanoseconds];\nmov.u64 %end, %globaltimer;\nadd.u64 %end, %end, %length;\n"
                    "again:\nmov.u64 %now, %globaltimer;\nsetp.lt.u64 %more, %now, %end;\n@%more bra again;\nret;\n}\n";

/* Code is measured, not asked for: a neighbour's free of the same moment hides it. */
void take_module(actor *a, object *o) {
  void *module, *function;
  allow(o, CODE);
  if (!FITS(cuModuleLoadData(&module, SPIN))) return;
  o->kind = MODULE;
  o->value = (uintptr_t)module;
  if (dice(a, 2)) FITS(cuModuleGetFunction(&function, module, "aliquot_spin"));
}

static void run(actor *a, const object *module) {
  void *function;
  uint64_t ns = 1000 * (1 + dice(a, 200));
  void *params[] = {&ns};
  if (!FITS(cuModuleGetFunction(&function, (void *)(uintptr_t)module->value, "aliquot_spin"))) return;
  for (unsigned i = dice(a, 6); i-- > 0;) MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, a->stream, params, NULL));
}

void launch(actor *a) {
  for (int i = 0; i < LIVE; i++)
    if (a->objects[i].kind == MODULE) {
      run(a, &a->objects[i]);
      return;
    }
}

void change_limits(actor *a) {
  size_t value;
  int limit = 1 + (int)dice(a, 2);
  MUST(cuCtxGetLimit(&value, limit));
  if (FITS(cuCtxSetLimit(limit, dice(a, 12) * MIB))) FITS(cuCtxSetLimit(limit, value));
}

/* What is not freed ends with the context, but for memory of pools. */
static void live_in_context(actor *a, object taken[3]) {
  static void (*const kinds[])(actor *, object *) = {take_memory, take_array, take_pitched, take_mipmap, take_managed, take_module};
  for (int i = 0; i < 3; i++) kinds[dice(a, 6)](a, &taken[i]);
  if (dice(a, 2)) change_limits(a);
  for (int i = 0; i < 3; i++)
    if (taken[i].kind != NOTHING && dice(a, 2)) give(a, &taken[i]);
  MUST(cuStreamSynchronize(a->stream));
}

static int create(actor *a, void **context) {
  if (cuCtxCreate_v4 && dice(a, 2)) return cuCtxCreate_v4(context, NULL, 0, 0);
  return cuCtxCreate_v2(context, 0, 0);
}

void visit_context(actor *a) {
  void *context;
  uint64_t stream = a->stream;
  object cost = {.kind = NOTHING}, taken[3] = {{.kind = NOTHING}};
  allow(&cost, CONTEXT + CODE);
  if (FITS(create(a, &context))) {
    a->stream = 0; /* that of the new context */
    live_in_context(a, taken);
    a->stream = stream;
    MUST(cuCtxDestroy_v2(context));
    MUST(cuCtxSetCurrent(primary));
  }
  for (int i = 0; i < 3; i++) disallow(&taken[i]);
  disallow(&cost);
}

void visit_green_context(actor *a) {
  char resource[144];
  void *description, *context;
  uint64_t stream = a->stream;
  object cost = {.kind = NOTHING}, taken = {.kind = NOTHING};
  if (!cuGreenCtxCreate) return;
  allow(&cost, CONTEXT + CODE);
  MUST(cuDeviceGetDevResource(0, resource, 1));
  MUST(cuDevResourceGenerateDesc(&description, resource, 1));
  if (FITS(cuGreenCtxCreate(&context, description, 0, 1))) {
    MUST(cuGreenCtxStreamCreate(&a->stream, context, 1, 0));
    take_async(a, &taken);
    if (taken.kind != NOTHING) give(a, &taken);
    MUST(cuStreamSynchronize(a->stream));
    MUST(cuStreamDestroy_v2(a->stream));
    a->stream = stream;
    MUST(cuGreenCtxDestroy(context));
  }
  disallow(&taken);
  disallow(&cost);
}
